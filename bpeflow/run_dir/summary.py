"""`describe_run`: a run in a few lines, for the terminal and for the page about it."""

from __future__ import annotations

from collections.abc import Iterator

from bpeflow._util.text import format_count, format_size, one_line, show_token
from bpeflow.counting.report import CountingReport
from bpeflow.run_dir.run_files import LearningReport, RunReport

#: Columns of the screen for the longest token: web text contains runs of thousands of spaces, which become tokens.
_LONGEST_SHOWN = 60


def describe_run(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield labelled lines about a run. One without a label belongs to the line before it."""
    counting = report.counting
    if corpus := report.corpus:
        stored = corpus.input_bytes or corpus.bytes
        files = f"{format_count(corpus.files, 'file')} of {format_size(stored)}"
        documents = format_count(corpus.documents - corpus.skipped_documents, "document")
        noun = "fragments of chunks" if counting and counting.cut else "pre-tokens"
        pretokens = f"{corpus.pretokens:,} {noun}, {corpus.distinct_pretokens:,} distinct"
        yield "corpus", f"{format_size(corpus.bytes)} of text in {files} and {documents}: {pretokens}"
        if unit := count_unit(report):
            yield "", unit
        if corpus.skipped_documents:
            yield "", f"{format_count(corpus.skipped_documents, 'document')} skipped: not UTF-8"
        if corpus.bad_records:
            yield "", f"{format_count(corpus.bad_records, 'bad record')} left out"
        if counting and report.counts is None:
            rate = f"{format_size(stored / max(counting.seconds, 1e-9))}/s of input"
            yield "counting", f"{counting.seconds:.1f} s, {rate} ({_workers(counting)})"
            yield from (("", line) for line in _counting_details(counting))
    if report.counts:
        yield "counts", f"{one_line(report.counts)}, of an earlier run"
    if learning := report.learning:
        yield "learning", f"{learning.seconds:.1f} s for {_merges(learning)}"
        if isinstance(transition := report.settings.get("transition_size"), int):
            reached = 256 + len(report.settings["special_tokens"]) + (report.second_stage or 0)
            yield "", f"superwords begin at {min(transition, reached):,} entries"  # fewer if the text had too few pairs
        if thinned := learning.thinned:
            yield "", f"thin_rare: from {thinned.kept_pretokens:,} of {thinned.pretokens:,} distinct pre-tokens"
        longest = learning.longest_token
        shown = f"{format_count(longest.bytes, 'byte')}: {show_token(bytes.fromhex(longest.hex), _LONGEST_SHOWN)}"
        yield "vocab", f"{learning.vocab_size:,} tokens; the longest has {shown}"


def count_unit(report: RunReport | None) -> str:
    """Return the unit of the counts in a run if they are not numbers of occurrences; else an empty string."""
    unit = report.corpus.count_unit if report and report.corpus else 1
    return f"weights have decimals: each occurrence counts {unit:,} times its weight" if unit > 1 else ""


def _counting_details(counting: CountingReport) -> list[str]:
    lines = []
    if cut := counting.cut:
        again = f", cut again as {format_count(len(cut.too_high), 'cut')} left too few merges" if cut.too_high else ""
        lines.append(f"superwords: cut at pairs that occur less than {cut.lowest_count:,} times{again}")
    if (segments := counting.segments) and segments.resumed:
        already = f"{segments.resumed:,} of {format_count(segments.segments, 'segment')}"
        lines.append(f"{already}, {format_size(segments.resumed_bytes)} of text, were already counted")
    if counting.spilled.shards:
        limit = format_size(counting.memory_limit)
        lines.append(f"{format_size(counting.spilled.bytes)} of counts were spilled to disk: memory_limit is {limit}")
    return lines


def _merges(learning: LearningReport) -> str:
    backend = learning.backend
    threads = f", {backend.threads} threads" if backend.threads > 1 else ""
    after = f" after {learning.replayed:,} replayed" if learning.replayed else ""
    after += f", {learning.resumed:,} of them resumed" if learning.resumed else ""
    return f"{learning.learned:,} merges{after} ({backend.name}{threads})"


def _workers(counting: CountingReport) -> str:
    if engine := counting.engine:
        return f"{format_count(engine.tasks, 'task')} on {format_count(len(engine.nodes), 'node')}"
    if counting.in_process:
        return f"{format_count(counting.threads, 'thread')}, no worker processes"
    named = [(name, counting.stages[name]) for name in ("counter", "merger") if name in counting.stages]
    return ", ".join(format_count(stage.workers, name) for name, stage in named)
