"""What people see of a run: plain lines of progress, and the summary at the end. On a terminal also `bars`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from bpeflow.flow import Sample
from bpeflow.observer import Observer
from bpeflow.one_line import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from bpeflow.tokenizer.dataset import DecodedFile, EncodedCorpus
    from bpeflow.training import TrainResult

#: Seconds between two plain lines of progress: often enough to see that it lives, seldom enough for a log file.
PLAIN_INTERVAL = 10.0


#: Characters to a line of a table that goes to a file or a pipe.
_WIDE = 160


@contextmanager
def observing(quiet: bool) -> Iterator[Observer]:
    """Set up messages, and who shows the progress: bars on a terminal, else lines."""
    console = Console(stderr=True, quiet=quiet)
    set_up_logging(console, quiet)
    if not console.is_terminal or quiet:
        yield PlainObserver(console)
        return
    from bpeflow.bars import TerminalObserver

    with TerminalObserver(console) as observer:
        yield observer


def summary_console(quiet: bool) -> Console:
    """Where the summary of a run is printed."""
    return Console(quiet=quiet, highlight=False, emoji=False, soft_wrap=True)


def table_console() -> Console:
    """Where tables are printed."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_WIDE)


def set_up_logging(console: Console, quiet: bool) -> None:
    """Let the library's warnings through to the console."""
    handler: logging.Handler
    if console.is_terminal:
        from rich.logging import RichHandler  # which only terminals need

        handler = RichHandler(console=console, show_time=False, show_path=False)
        handler.setFormatter(_OneLine("%(message)s"))
    else:
        handler = logging.StreamHandler(console.file)
        handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, handlers=[handler], force=True)


class _OneLine(logging.Formatter):
    """Keeps each message to a line of its own; a traceback may follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name is the base class's
        return one_line(super().formatMessage(record))


class PlainObserver(Observer):
    """Prints a line now and then: for log files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started: dict[str, tuple[float, int]] = {}
        self._printed: dict[str, float] = {}

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._say_bytes("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._say_bytes("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._say_bytes("decoding", decoded_bytes, total_bytes)

    def merging(self, learned: int, wanted: int) -> None:
        if (since := self._due("merging", learned, learned >= wanted)) is not None:
            elapsed, new = since
            self._say(f"merging: {learned:,} of {wanted:,} merges{_time_left(elapsed, new, wanted - learned)}")

    def monitored(self, sample: Sample) -> None:
        self._say(sample.line())

    def _say_bytes(self, what: str, done: int, total: int | None) -> None:
        if (since := self._due(what, done, total is not None and done >= total)) is not None:
            elapsed, new = since
            rate = f", {format_size(new / elapsed)}/s" if elapsed > 0.05 else ""
            of_all = "" if total is None else f" of {format_size(total)}"
            left = "" if total is None else _time_left(elapsed, new, total - done)
            self._say(f"{what}: {format_size(done)}{of_all}{rate}{left}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _due(self, what: str, done: int, finished: bool) -> tuple[float, int] | None:
        """How long it has been since `what` was heard of first, and what was done since then (all, or what an earlier
        run had left to do), if it is time to say something of it; its end is told once, whenever it comes.
        """
        now = time.monotonic()
        started, at_first = self._started.setdefault(what, (now, done))
        last = self._printed.setdefault(what, now)
        if last == float("inf") or (not finished and now - last < PLAIN_INTERVAL):
            return None
        self._printed[what] = float("inf") if finished else now
        return now - started, done - at_first


def print_summary(console: Console, result: TrainResult, out_dir: str) -> None:
    """Say in a few lines what came of a run."""
    statistics = result.statistics
    say = console.print
    say()
    if corpus := statistics.get("corpus"):
        say(
            f"[bold]corpus[/]   {format_size(corpus['bytes'])} in {_number(corpus['files'], 'file')} and "
            f"{_number(corpus['documents'], 'document')}: {corpus['pretokens']:,} pre-tokens, "
            f"{corpus['distinct_pretokens']:,} of them distinct"
        )
    if counting := statistics.get("counting"):
        rate = statistics["corpus"]["bytes"] / max(counting["seconds"], 1e-9)
        say(f"[bold]counting[/] {counting['seconds']:.1f} s, {format_size(rate)}/s" + _workers(counting["stages"]))
        if (segments := counting.get("segments")) and segments["taken_over"]:
            already = f"{segments['taken_over']:,} of {_number(segments['segments'], 'segment')}"
            say(f"         {already}, {format_size(segments['taken_over_bytes'])} of text, had been counted before")
        if (spilled := counting.get("spilled", {})).get("runs"):
            limit = format_size(counting["memory_limit"])
            say(f"         {format_size(spilled['bytes'])} of counts went through files: memory_limit is {limit}")
    if merging := statistics.get("merging"):
        backend = merging["backend"]
        threads = f", {backend['threads']} threads" if backend["threads"] > 1 else ""
        after = f" after {merging['replayed']:,} replayed" if merging["replayed"] else ""
        after += f", {merging['taken_over']:,} of them learned before" if merging.get("taken_over") else ""
        merges = f"{merging['learned']:,} merges{after} ({backend['name']}{threads})"
        say(f"[bold]merging[/]  {merging['seconds']:.1f} s for {merges}")
        longest = merging["longest_token"]
        say(
            f"[bold]vocab[/]    {merging['vocab_size']:,} tokens; the longest has {_number(longest['bytes'], 'byte')}: "
            + escape(repr(_shortened(longest["text"])))
        )
    say(f"[bold]written[/]  {escape(one_line(out_dir))}: {', '.join([*statistics['files'], 'run.json'])}")


def print_encoded(console: Console, corpus: EncodedCorpus) -> None:
    """Say in a few lines what came of encoding a corpus."""
    rate = format_size(corpus.bytes / max(corpus.seconds, 1e-9))
    skipped = f", {corpus.skipped_documents:,} skipped" if corpus.skipped_documents else ""
    console.print(
        f"[bold]encoded[/]  {format_size(corpus.bytes)} in {corpus.seconds:.1f} s, {rate}/s, "
        f"{_number(corpus.tokens, 'token')} ({corpus.dtype}) of {_number(corpus.documents, 'document')}{skipped}"
    )
    console.print(f"[bold]written[/]  {escape(one_line(', '.join(map(str, corpus.written))))}")


def print_decoded(console: Console, decoded: DecodedFile, path: Path) -> None:
    """Say in a few lines what came of decoding a token file."""
    rate = format_size(decoded.bytes / max(decoded.seconds, 1e-9))
    console.print(
        f"[bold]decoded[/]  {_number(decoded.tokens, 'token')} in {decoded.seconds:.1f} s to "
        f"{format_size(decoded.bytes)}, {rate}/s"
    )
    console.print(f"[bold]written[/]  {escape(one_line(str(path)))}")


def _workers(stages: dict[str, object]) -> str:
    counters: dict[str, int] = stages["counter"]  # type: ignore[assignment]
    if stages["in_process"]:
        return f" ({_number(counters['threads'], 'thread')}, no worker processes)"
    mergers: dict[str, int] = stages["merger"]  # type: ignore[assignment]
    return f" ({_number(counters['workers'], 'counter')}, {_number(mergers['workers'], 'merger')})"


def _shortened(text: str, limit: int = 60) -> str:
    """Cut what would fill the screen: web text has runs of thousands of spaces, and they become tokens."""
    return text if len(text) <= limit else text[:limit] + "…"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size: float) -> str:
    """Bytes as people read them: ``150.3 MB``, ``12 kB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:.0f} bytes"


def _time_left(elapsed: float, done: int, left: int) -> str:
    if done <= 0 or left <= 0:
        return ""
    seconds = round(elapsed * left / done)
    return f", {seconds // 60}:{seconds % 60:02} left"
