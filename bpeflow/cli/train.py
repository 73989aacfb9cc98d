"""`bpeflow train`, the default command: count a corpus, learn the merges, write the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bpeflow._util.text import format_count, format_size, one_line
from bpeflow.cli.exit import USAGE
from bpeflow.cli.options import (
    add_learning_flags,
    add_run_flags,
    add_setting,
    add_switch,
    new_parser,
    overrides,
)
from bpeflow.config import Settings, load_values
from bpeflow.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from bpeflow.progress import Observer
    from bpeflow.run_dir.report import CountingReport, LearningReport
    from bpeflow.training.train import TrainResult

_DESCRIPTION = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn merges, write vocab.json and merges.txt.

  python -m bpeflow --config configs/quickstart.yaml
  python -m bpeflow --config configs/owt.yaml --backend omp --num_counter 8 --do_monitor
  python -m bpeflow --input corpus/*.txt --vocab_size 32000 --out_dir runs/mine
"""
_OTHER_COMMANDS = """\
Other commands (--help describes each):
  python -m bpeflow merge --counts runs/owt    learn merges again from saved counts
  python -m bpeflow compare --counts runs/owt  compare merge backends on saved counts
  python -m bpeflow counts SRC DST             convert counts to JSON or TSV, and back
  python -m bpeflow encode, decode, evaluate   convert corpora to token files and back; compare tokenizers
  python -m bpeflow convert SRC DST --to NAME  write a tokenizer in another format
  python -m bpeflow backends                   list the merge backends and why any is unavailable
  python -m bpeflow config                     print every setting with its description and default

Every setting can be given as --set key=value; python -m bpeflow config --print lists them all.
"""

#: Characters of the longest token to show: web text contains runs of thousands of spaces, which become tokens.
_LONGEST_SHOWN = 60


def run(argv: Sequence[str]) -> int:
    """Train as the flags and the config say."""
    parser = new_parser("python -m bpeflow", _DESCRIPTION, _OTHER_COMMANDS)
    parser.add_argument("--version", action="store_true", help="print the version")
    add_run_flags(parser)
    _add_counting_flags(parser)
    add_learning_flags(parser)
    if not argv:
        parser.print_help()
        return USAGE
    options = parser.parse_args(argv)
    from bpeflow.run_dir.recorded import make_run_settings
    from bpeflow.training.train import train

    settings = make_run_settings(load_values(options.config, overrides(options)), str(options.config or ""))

    return run_training(settings, options.quiet, lambda observer: train(settings, observer))


def run_training(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> int:
    """Do `work` with progress shown, and print the summary of its result."""
    from bpeflow.cli.progress import observing, summary_console

    if settings.out_dir is None:
        raise ConfigError("no output folder: give --out_dir FOLDER, or out_dir in the config")
    with observing(quiet) as observer:
        result = work(observer)
    print_summary(summary_console(quiet), result, str(settings.out_dir))
    return 0


def _add_counting_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("counting")
    add_setting(group, "input", metavar="PATH", nargs="+")
    add_setting(group, "input_format", metavar="NAME")
    add_setting(group, "text_field", metavar="NAME")
    add_setting(group, "text_column", metavar="NAME")
    add_setting(group, "num_counter", None, "-c", metavar="N", type=int)
    add_setting(group, "num_merger", None, "-m", metavar="N", type=int)
    add_setting(group, "chunk_size", metavar="SIZE")
    add_setting(group, "memory_limit", metavar="SIZE")
    add_switch(group, "monitor.enabled", "--do_monitor")
    add_switch(group, "skip_merge")


# ---- the summary ----


def print_summary(console: Console, result: TrainResult, out_dir: str) -> None:
    """Print a few lines about a finished run."""
    from rich.markup import escape

    report = result.report
    say = console.print
    say()
    if corpus := report.corpus:
        say(
            f"[bold]corpus[/]   {format_size(corpus.bytes)} in {format_count(corpus.files, 'file')} and "
            f"{format_count(corpus.documents, 'document')}: {corpus.pretokens:,} pre-tokens, "
            f"{corpus.distinct_pretokens:,} distinct"
        )
        if counting := report.counting:
            rate = corpus.bytes / max(counting.seconds, 1e-9)
            say(f"[bold]counting[/] {counting.seconds:.1f} s, {format_size(rate)}/s{_workers(counting)}")
            for line in _counting_details(counting):
                say(f"         {line}")
    if learning := report.learning:
        say(f"[bold]learning[/] {learning.seconds:.1f} s for {_merges(learning)}")
        longest = learning.longest_token
        text = longest.text if len(longest.text) <= _LONGEST_SHOWN else longest.text[:_LONGEST_SHOWN] + "…"
        say(
            f"[bold]vocab[/]    {learning.vocab_size:,} tokens; the longest has {format_count(longest.bytes, 'byte')}: "
            + escape(repr(text))
        )
    say(f"[bold]written[/]  {escape(one_line(out_dir))}: {', '.join([*report.files, 'run.json'])}")


def _counting_details(counting: CountingReport) -> list[str]:
    lines = []
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
    counters, mergers = counting.stages["counter"], counting.stages["merger"]
    if counting.in_process:
        return f" ({format_count(counting.threads, 'thread')}, no worker processes)"
    return f" ({format_count(counters.workers, 'counter')}, {format_count(mergers.workers, 'merger')})"
