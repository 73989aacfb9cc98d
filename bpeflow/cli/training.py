"""What the commands that train have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bpeflow._util.text import one_line
from bpeflow.cli.progress import observing, print_summary
from bpeflow.config import Settings
from bpeflow.errors import ConfigError, CorpusError, FolderInUseError, FormatError, ScratchError, WorkerDiedError
from bpeflow.run_dir.layout import REPORT_FILE
from bpeflow.run_dir.resume import how_to_continue
from bpeflow.run_dir.summary import describe_run

if TYPE_CHECKING:
    from bpeflow.progress import Observer
    from bpeflow.training.train import TrainResult

log = logging.getLogger(__name__)


def run_training(settings: Settings, quiet: bool, work: Callable[[Observer], TrainResult]) -> None:
    """Do `work` with progress shown, and print the summary of its result."""
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
