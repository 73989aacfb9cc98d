"""Progress, messages and summaries of the command line. Rich is only loaded for terminals."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bpeflow._util.text import one_line
from bpeflow.cli.exit import with_flags
from bpeflow.errors import (
    ConfigError,
    CorpusError,
    FolderInUseError,
    FormatError,
    OutputError,
    ScratchError,
    WorkerDiedError,
)
from bpeflow.progress.observer import Observer, PlainObserver

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from bpeflow.config import Settings
    from bpeflow.training.train import TrainResult

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


def run_training(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> None:
    """Do `work` with progress shown, and print the summary of its result."""
    from bpeflow.run_dir.layout import REPORT_FILE  # needed for a training only
    from bpeflow.run_dir.resume import how_to_continue
    from bpeflow.run_dir.summary import describe_run

    if settings.out_dir is None:
        raise ConfigError("no output folder: give --out_dir FOLDER, or name one in the config")
    try:
        with observing(quiet) as observer:
            result = work(observer)
    except (ConfigError, CorpusError, FolderInUseError, FormatError):  # some of which are an OSError, too
        raise
    except (KeyboardInterrupt, OSError, ScratchError, WorkerDiedError):
        log.info("%s", how_to_continue(settings.out_dir))
        raise
    files: dict[Path, list[str]] = {settings.out_dir: []}
    for path in (settings.out_dir / name for name in [*result.report.files, REPORT_FILE]):
        files.setdefault(path.parent, []).append(path.name)
    written = [one_line(f"{folder}: {', '.join(names)}") for folder, names in files.items()]
    is_new = result.learned is not None or settings.skip_merge  # and not of a run that was finished before
    labels = ["written" if is_new else "kept", *[""] * len(written)]
    print_summary([("", ""), *describe_run(result.report), *zip(labels, written, strict=False)], quiet)


class _OneLine(logging.Formatter):
    """Keeps each message on one line, with settings as flags; a traceback may follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name is the base class's
        record.message = with_flags(record.message)
        return one_line(super().formatMessage(record))
