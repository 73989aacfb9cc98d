"""Progress and messages of the command line: bars on a terminal, plain lines elsewhere."""

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

#: Seconds between two plain lines of progress: short enough to see that the run is alive, long enough for a log file.
PLAIN_INTERVAL = 10.0

#: Width of a table that goes to a file or a pipe, in characters.
_WIDE = 160


@contextmanager
def observing(quiet: bool) -> Iterator[Observer]:
    """Set up logging and yield an observer that shows progress: bars on a terminal, lines elsewhere."""
    console = Console(stderr=True, quiet=quiet)
    set_up_logging(console, quiet)
    if not console.is_terminal or quiet:
        yield PlainObserver(console)
        return
    with TerminalObserver(console) as observer:
        yield observer


def summary_console(quiet: bool) -> Console:
    """Return the console for the summary of a run."""
    return Console(quiet=quiet, highlight=False, emoji=False, soft_wrap=True)


def table_console() -> Console:
    """Return the console for tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_WIDE)


def set_up_logging(console: Console, quiet: bool) -> None:
    """Send the library's log messages to the console."""
    handler: logging.Handler
    if console.is_terminal:
        from rich.logging import RichHandler  # needed on a terminal only

        handler = RichHandler(console=console, show_time=False, show_path=False)
        handler.setFormatter(_OneLine("%(message)s"))
    else:
        handler = logging.StreamHandler(console.file)
        handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, handlers=[handler], force=True)


class _OneLine(logging.Formatter):
    """Keeps each message on one line; a traceback may follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name is the base class's
        return one_line(super().formatMessage(record))


class PlainObserver(Observer):
    """Prints a line at an interval, for log files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started: dict[str, tuple[float, int]] = {}
        self._printed: dict[str, float] = {}

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("decoding", decoded_bytes, total_bytes)

    def learning(self, learned: int, wanted: int) -> None:
        if (since := self._due("learning", learned, learned >= wanted)) is not None:
            elapsed, new = since
            self._print(f"learning: {learned:,} of {wanted:,} merges{_time_left(elapsed, new, wanted - learned)}")

    def monitored(self, sample: MonitorSample) -> None:
        self._print(sample.line())

    def _print_bytes(self, what: str, done: int, total: int | None) -> None:
        if (since := self._due(what, done, total is not None and done >= total)) is not None:
            elapsed, new = since
            rate = f", {format_size(new / elapsed)}/s" if elapsed > 0.05 else ""
            of_all = "" if total is None else f" of {format_size(total)}"
            left = "" if total is None else _time_left(elapsed, new, total - done)
            self._print(f"{what}: {format_size(done)}{of_all}{rate}{left}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _due(self, what: str, done: int, finished: bool) -> tuple[float, int] | None:
        """Return the seconds and the work since the first report of an activity if a line is due, else None.

        A resumed activity starts with work done before, which is left out. Its end is reported once, whenever it comes.
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
    """Draws progress bars. A context manager."""

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
    """The amount done: merges while learning, bytes and their rate otherwise."""

    _merges = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.description == "learning":
            return self._merges.render(task)
        rate = f"  {format_size(task.speed)}/s" if task.speed else ""
        of_all = "" if task.total is None else f" of {format_size(task.total)}"
        return Text(f"{format_size(task.completed)}{of_all}{rate}")
