"""`bpeflow train`, the default command: count a corpus, learn the merges, write the tokenizer."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bpeflow._util.text import format_count, format_size, one_line, show_token
from bpeflow.cli.parser import Parser
from bpeflow.cli.settings import add_run_flags, settings_of
from bpeflow.config import Settings, load_values
from bpeflow.errors import ConfigError

if TYPE_CHECKING:
    from bpeflow.counting.report import CountingReport
    from bpeflow.progress import Observer
    from bpeflow.run_dir.run_files import LearningReport
    from bpeflow.training.train import TrainResult

_DESCRIPTION = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn merges, write vocab.json and merges.txt.

  bpeflow --config configs/quickstart.yaml
  bpeflow --config configs/owt.yaml --backend omp --num_counter 8 --do_monitor
  bpeflow --input corpus/*.txt --vocab_size 32000 --out_dir runs/mine
  bpeflow --input corpus/*.txt --init_from cl100k_base.tiktoken --vocab_size 110k --out_dir runs/more
"""

#: Columns of the screen for the longest token: web text contains runs of thousands of spaces, which become tokens.
_LONGEST_SHOWN = 60


def train_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("train", _DESCRIPTION)
    add_run_flags(parser)
    return parser


def run_train(options: Namespace) -> None:
    """Train as the flags and the config say."""
    flags = settings_of(options)
    if not flags and options.config is None:
        raise ConfigError("nothing to train on: give --input PATH or --config FILE (see bpeflow train --help)")
    from bpeflow.run_dir.resume import make_run_settings
    from bpeflow.training.train import train

    settings = make_run_settings(load_values(options.config, flags), str(options.config or ""), flags)
    run_training(settings, options.quiet, lambda observer: train(settings, observer))


def run_training(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> None:
    """Do `work` with progress shown, and print the summary of its result."""
    from bpeflow.cli.progress import observing, print_summary

    if settings.out_dir is None:
        raise ConfigError("no output folder: give --out_dir FOLDER, or out_dir in the config")
    with observing(quiet) as observer:
        result = work(observer)
    print_summary(_summary(result, str(settings.out_dir)), quiet)


# ---- the summary ----


def _summary(result: TrainResult, out_dir: str) -> Iterator[tuple[str, str]]:
    """Yield labelled lines about a finished run."""
    report = result.report
    yield "", ""
    if corpus := report.corpus:
        counting = report.counting
        stored = _input_bytes(counting) if counting else corpus.bytes
        other_size = format_size(stored) != format_size(corpus.bytes)
        yield (
            "corpus",
            f"{format_size(corpus.bytes)}{' of text' if other_size else ''} in "
            f"{format_count(corpus.files, 'file')}{f' of {format_size(stored)}' if other_size else ''} and "
            f"{format_count(corpus.documents, 'document')}: {corpus.pretokens:,} pre-tokens, "
            f"{corpus.distinct_pretokens:,} distinct",
        )
        if corpus.skipped_documents:
            yield "", f"{format_count(corpus.skipped_documents, 'document')} skipped: not UTF-8"
        if corpus.bad_records:
            yield "", f"{format_count(corpus.bad_records, 'bad record')} left out"
        if counting and report.counts is None:
            rate = f"{format_size(stored / max(counting.seconds, 1e-9))}/s{' of input' if other_size else ''}"
            yield "counting", f"{counting.seconds:.1f} s, {rate}{_workers(counting)}"
            yield from (("", line) for line in _counting_details(counting))
    if report.counts:
        yield "counts", f"{one_line(report.counts)}, of an earlier run"
    if learning := report.learning:
        yield "learning", f"{learning.seconds:.1f} s for {_merges(learning)}"
        if thinned := learning.thinned:
            yield "", f"thin_rare: from {thinned.kept_pretokens:,} of {thinned.pretokens:,} distinct pre-tokens"
        longest = learning.longest_token
        yield (
            "vocab",
            f"{learning.vocab_size:,} tokens; the longest has {format_count(longest.bytes, 'byte')}: "
            + show_token(longest.text.encode(), _LONGEST_SHOWN),
        )
    yield "written", f"{one_line(out_dir)}: {', '.join([*report.files, 'run.json'])}"


def _counting_details(counting: CountingReport) -> list[str]:
    lines = []
    if (segments := counting.segments) and segments.resumed:
        already = f"{segments.resumed:,} of {format_count(segments.segments, 'segment')}"
        lines.append(f"{already}, {format_size(segments.resumed_bytes)} of text, were already counted")
    if engine := counting.engine:
        lines.append(f"{format_count(engine.tasks, 'task')} on {format_count(len(engine.nodes), 'node')}")
    if counting.spilled.shards:
        limit = format_size(counting.memory_limit)
        lines.append(f"{format_size(counting.spilled.bytes)} of counts were spilled to disk: memory_limit is {limit}")
    return lines


def _input_bytes(counting: CountingReport) -> int:
    """Return the size of the input as it is stored, which progress counts too: compressed, or in JSON."""
    readers = counting.stages.get("stream reader") or counting.stages["counter"]
    return readers.bytes or counting.stages["chunk reader"].bytes  # the size of standard input is unknown


def _merges(learning: LearningReport) -> str:
    backend = learning.backend
    threads = f", {backend.threads} threads" if backend.threads > 1 else ""
    after = f" after {learning.replayed:,} replayed" if learning.replayed else ""
    after += f", {learning.resumed:,} of them resumed" if learning.resumed else ""
    return f"{learning.learned:,} merges{after} ({backend.name}{threads})"


def _workers(counting: CountingReport) -> str:
    counters, mergers = counting.stages["counter"], counting.stages["merger"]
    if counting.in_process:
        return f" ({format_count(counting.threads, 'thread')}, no worker processes)"
    return f" ({format_count(counters.workers, 'counter')}, {format_count(mergers.workers, 'merger')})"
