"""Progress, messages and summaries of the command line. Rich is only loaded for terminals."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bpeflow._util.text import one_line
from bpeflow.cli.exit import with_flags
from bpeflow.errors import OutputError
from bpeflow.progress.observer import Observer, PlainObserver

if TYPE_CHECKING:
    from rich.console import Console

#: Environment variables by which a stream that is not a terminal is drawn on as if it were.
_AS_TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE")

log = logging.getLogger(__name__)


@contextmanager
def observing(quiet: bool) -> Iterator[Observer]:
    """Set up logging and yield an observer that shows progress: bars on a terminal, lines elsewhere."""
    console = set_up_logging(quiet)
    if console is None:
        yield Observer() if quiet else PlainObserver(sys.stderr)
        return
    from bpeflow.progress.terminal import drawing

    with drawing(console) as observer:
        yield observer


def set_up_logging(quiet: bool = False) -> Console | None:
    """Send the library's log messages to standard error. Return its console if it is to be drawn on."""
    console, form = None, "%(levelname)s: %(message)s"
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if not quiet and (sys.stderr.isatty() or any(map(os.environ.get, _AS_TERMINAL))):
        from rich.console import Console
        from rich.logging import RichHandler

        console, form = Console(stderr=True), "%(message)s"
        handler = RichHandler(console=console, show_time=False, show_path=False)
    handler.setFormatter(_OneLine(form))
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, handlers=[handler], force=True)
    return console


def print_summary(fields: Iterable[tuple[str, str]], quiet: bool) -> None:
    """Print labelled lines about results. A broken output is no error: the results are on disk."""
    if quiet:
        return
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    try:
        for label, text in fields:
            heading = f"\x1b[1m{label}\x1b[0m" if bold and label else label
            print(f"{heading}{' ' * (9 - len(label))}{text}".rstrip())  # noqa: T201
        sys.stdout.flush()
    except OutputError as error:
        log.warning("%s: the run is complete, but its summary is not shown", error)


class _OneLine(logging.Formatter):
    """Keeps each message on one line, with settings as flags; a traceback may follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name is the base class's
        record.message = with_flags(record.message)
        return one_line(super().formatMessage(record))
