"""Resuming: find what an earlier run left in the run folder, and continue, finish, replace or refuse it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.errors import FormatError, ResumeError
from bpeflow.formats import gpt2
from bpeflow.run_dir.checkpoint import check_same_settings, learning_fingerprint
from bpeflow.run_dir.layout import CHECKPOINT_FILE, COUNTS_FILE, REPORT_FILE, SEGMENTS, UNFINISHED
from bpeflow.run_dir.publish import publish, remove_unfinished
from bpeflow.run_dir.report import RunReport, check_counts, read_report
from bpeflow.run_dir.run_dir import RunDir
from bpeflow.run_dir.state import Phase, inspect
from bpeflow.vocab import Vocab

log = logging.getLogger(__name__)

#: Where a run's counts come from: it counts itself, it continues with those of the interrupted run in its folder, or
#: they are given from elsewhere.
CountsOrigin = Literal["own", "interrupted", "elsewhere"]


@dataclass(frozen=True)
class FinishedCounts:
    """The counts of an earlier run in the folder, with its report.

    Attributes:
        folder: the run folder.
        counts: the counts.
        report: the report of the run that made them.
        in_progress: whether that run is unfinished.
    """

    folder: Path
    counts: PretokenCounts
    report: RunReport
    in_progress: bool

    def nothing_left(self, settings: Settings) -> bool:
        """Return whether that run has done all that `settings` ask for.

        Raises:
            ResumeError: it learned merges with other settings.
        """
        if self.in_progress:
            return False
        if settings.skip_merge:
            return True
        if self.report.learning is None or inspect(self.folder).phase is Phase.LEARNING:
            return False
        check_same_settings(self.report.learning.fingerprint, learning_fingerprint(settings), self.folder / REPORT_FILE)
        try:
            self.vocab(settings.special_tokens)
        except (FormatError, OSError) as error:
            log.warning("the vocabulary in %s is damaged or missing and will be learned again: %s", self.folder, error)
            return False
        return all((self.folder / name).exists() for name in self.report.files)

    def vocab(self, special_tokens: Sequence[str]) -> Vocab | None:
        """Read the vocabulary; None if none was learned."""
        if self.report.learning is None:
            return None
        return gpt2.load_files(self.folder / gpt2.VOCAB_FILE, self.folder / gpt2.MERGES_FILE, special_tokens)


def settle_interrupted(folder: Path, settings: Settings, origin: CountsOrigin = "own") -> None:
    """Make way for a new run: keep an interrupted run to resume, or refuse to lose it, or remove it with `restart`.

    A run that was interrupted while its results were published is finished first.

    Raises:
        ResumeError: the folder has an interrupted run, and the settings neither resume nor discard it; or this run,
            whose counts come from elsewhere, cannot resume it.
    """
    finish_publishing(folder, settings.restart)
    state, unfinished = inspect(folder), folder / UNFINISHED
    own_counts = state.counts == unfinished
    at_stake: list[str] = []
    if origin != "interrupted":
        at_stake += [f"{SEGMENTS}/"] * (state.phase is Phase.COUNTING) + [COUNTS_FILE] * _are_costly(unfinished)
    at_stake += [CHECKPOINT_FILE] * (unfinished / CHECKPOINT_FILE).exists()
    can_resume = origin != "elsewhere" or not (own_counts or state.phase is Phase.COUNTING)
    if settings.resume and can_resume:
        return
    if at_stake and not settings.restart:
        raise ResumeError(
            f"{folder} has an unfinished run ({' and '.join(at_stake)}): resume it (--resume), discard it and start "
            "over (--restart), or use another out_dir"
        )
    if at_stake:
        log.warning("%s: discarding the unfinished run", folder)
    if origin == "interrupted":
        (unfinished / CHECKPOINT_FILE).unlink(missing_ok=True)
    else:
        remove_unfinished(folder)


def finish_publishing(folder: Path, restart: bool = False) -> None:
    """Publish the results of a run that was interrupted while doing so; with `restart` discard them if damaged."""
    state = inspect(folder)
    if not (state.phase is Phase.DONE and state.in_progress):
        return
    log.info("%s: publishing the results of a run that was interrupted while doing so", folder)
    try:
        publish(folder)
    except ResumeError:
        if not restart:
            raise
        remove_unfinished(folder)


def folder_of_counts(run_dir: Path) -> Path:
    """Return the folder of the latest counts: ``unfinished/`` if learning failed there, else the run folder.

    Takes the folder's lock if results are to be published first. Raises as `RunDir` and `publish` do.
    """
    state = inspect(run_dir)
    if state.phase is Phase.DONE and state.in_progress:
        with RunDir(run_dir):
            finish_publishing(run_dir)
        state = inspect(run_dir)
    return state.counts or run_dir


def find_counts(settings: Settings, fingerprint: Fingerprint) -> FinishedCounts | None:
    """Return the counts of an earlier run in `out_dir`; None if the corpus is to be counted (on), or without `resume`.

    Raises:
        ResumeError: the counts are of another corpus, of other settings, or damaged.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None or inspect(folder).phase is Phase.COUNTING:
        return None
    try:
        found = _read_counts(folder, UNFINISHED, fingerprint) or _read_counts(folder, "", fingerprint)
    except FormatError as error:
        raise ResumeError(f"{error}. To count again, use --restart") from error
    if found is None:
        log.info("%s has no run to resume: starting from the beginning", folder)
    return found


def _read_counts(folder: Path, subfolder: str, fingerprint: Fingerprint) -> FinishedCounts | None:
    report, path = read_report(folder / subfolder), folder / subfolder / COUNTS_FILE
    if report is None or report.counting is None or not path.exists():
        return None
    if changes := fingerprint.differences_from_summary(report.counting.fingerprint):
        raise ResumeError(
            f"the run in {folder} counted something else: {'; '.join(changes)}. Undo the change to resume it, or start "
            "over with --restart or in another out_dir"
        )
    counts = PretokenCounts.load(path)
    check_counts(report, counts, path)
    log.info("the corpus is already counted: resuming from %s", path)
    return FinishedCounts(folder, counts, report, in_progress=subfolder == UNFINISHED)


def _are_costly(folder: Path) -> bool:
    """Return whether a folder has counts that took long to make, of a run that was still to learn merges."""
    try:
        report = read_report(folder)
    except FormatError:
        return False
    if report is None or report.counting is None or report.counting.segments is None:
        return False
    return report.learns_later and (folder / COUNTS_FILE).exists()
