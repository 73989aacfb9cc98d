"""Progress, messages and summaries of the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from bpeflow._util.text import one_line
from bpeflow.errors import OutputError
from bpeflow.progress import Observer
from bpeflow.progress.terminal import PlainObserver, drawing

#: Width of a table that goes to a file or a pipe, in characters.
_WIDE = 160

log = logging.getLogger(__name__)


@contextmanager
def observing(quiet: bool) -> Iterator[Observer]:
    """Set up logging and yield an observer that shows progress: bars on a terminal, lines elsewhere."""
    console = Console(stderr=True, quiet=quiet)
    set_up_logging(console, quiet)
    if quiet:
        yield PlainObserver(console)
        return
    with drawing(console) as observer:
        yield observer


@contextmanager
def summary(quiet: bool) -> Iterator[Console]:
    """Yield the console for the summary of a run, whose results are on disk whether the summary is read or not."""
    console = Console(quiet=quiet, highlight=False, emoji=False, soft_wrap=True)
    try:
        yield console
        console.file.flush()
    except OutputError as error:
        log.warning("%s: the run is complete, but its summary is not shown", error)


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
