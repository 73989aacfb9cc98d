"""What people see of a run: plain lines of progress, and the summary at the end. On a terminal also `bars`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from bpeflow._util.text import format_size, one_line
from bpeflow.flow import MonitorSample
from bpeflow.progress import Observer

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

    def formatMessage(self, record: logging.LogRecord) -> str:
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

    def learning(self, learned: int, wanted: int) -> None:
        if (since := self._due("learning", learned, learned >= wanted)) is not None:
            elapsed, new = since
            self._say(f"learning: {learned:,} of {wanted:,} merges{_time_left(elapsed, new, wanted - learned)}")

    def monitored(self, sample: MonitorSample) -> None:
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


def _time_left(elapsed: float, done: int, left: int) -> str:
    if done <= 0 or left <= 0:
        return ""
    seconds = round(elapsed * left / done)
    return f", {seconds // 60}:{seconds % 60:02} left"


class TerminalObserver(Observer):
    """Draws progress bars. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            TaskProgressColumn(),
            _AmountColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks: dict[str, object] = {}

    def __enter__(self) -> TerminalObserver:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._update("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._update("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._update("decoding", decoded_bytes, total_bytes)

    def learning(self, learned: int, wanted: int) -> None:
        self._update("learning", learned, wanted)

    def monitored(self, sample: MonitorSample) -> None:
        self._progress.console.print(sample.line(), markup=False, highlight=False, soft_wrap=True)

    def _update(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, completed=done)
        self._progress.update(self._tasks[what], completed=done)  # type: ignore[arg-type]


class _AmountColumn(ProgressColumn):
    """Merges for merging, megabytes and their rate for all else."""

    _merges = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.description == "learning":
            return self._merges.render(task)
        rate = f"  {format_size(task.speed)}/s" if task.speed else ""
        of_all = "" if task.total is None else f" of {format_size(task.total)}"
        return Text(f"{format_size(task.completed)}{of_all}{rate}")
