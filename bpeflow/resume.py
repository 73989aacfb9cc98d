"""What an earlier run has left in the run folder: to go on with, to remove, or to be asked about."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.segments import SEGMENTS_FOLDER, is_begun
from bpeflow.errors import FormatError, ResumeError
from bpeflow.formats import gpt2
from bpeflow.partial_merges import PARTIAL_FILE, check_same_settings, merge_fingerprint
from bpeflow.publishing import COUNTS_FILE, UNFINISHED, is_done, publish, remove_unfinished
from bpeflow.report.run import RUN_FILE, check_counts, read_run
from bpeflow.run_folder import RunFolder
from bpeflow.vocab import Vocab

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Counted:
    """A run folder whose corpus is counted.

    Attributes:
        folder: its path.
        counts: the counts.
        report: ``run.json`` of the run that made them.
        is_unfinished: whether they are in `unfinished/`, as that run has come no further.
    """

    folder: Path
    counts: PretokenCounts
    report: dict[str, Any]
    is_unfinished: bool

    def is_finished(self, settings: Settings) -> bool:
        """Whether nothing is left to be done. Raises `ResumeError` if it was done with other settings."""
        merging = self.report.get("merging")
        if self.is_unfinished:
            return False
        if settings.skip_merge:
            return True
        if merging is None or (self.folder / UNFINISHED / PARTIAL_FILE).exists():
            return False
        check_same_settings(merging.get("fingerprint", {}), merge_fingerprint(settings), self.folder / RUN_FILE)
        try:
            self.vocab(settings.special_tokens)
        except (FormatError, OSError) as error:
            log.warning("the vocabulary in %s is damaged or gone, and is learned again: %s", self.folder, error)
            return False
        return all((self.folder / name).exists() for name in self.report.get("files", ()))

    def vocab(self, special_tokens: Sequence[str]) -> Vocab | None:
        """Read the vocabulary, if one was learned."""
        if "merging" not in self.report:
            return None
        return gpt2.load(self.folder / gpt2.VOCAB_FILE, self.folder / gpt2.MERGES_FILE, special_tokens)


#: Which counts a run begins with: it makes them; or they are those of the run in `unfinished/`, which it ends.
Counts = Literal["its own", "unfinished", "elsewhere"]


def look_for_unfinished(folder: Path, settings: Settings, counts: Counts = "its own") -> None:
    """See that nothing of an unfinished run is lost unasked: refuse it, or remove it if `restart` says so.

    One that was killed when it was done already, but for its files' taking their place, is brought to its end.
    One that has made counts, or is about to, cannot be gone on with by one whose `counts` are others. Raises
    `ResumeError`.
    """
    unfinished = folder / UNFINISHED
    _finish_publishing(folder, settings.restart)
    found: list[str] = []
    goes_on = True
    if counts != "unfinished":
        found = [f"{SEGMENTS_FOLDER}/"] * is_begun(unfinished) + [COUNTS_FILE] * _has_large_counts(unfinished)
        goes_on = counts == "its own" or not (found or (unfinished / COUNTS_FILE).exists())
    partial = unfinished / PARTIAL_FILE
    found += [PARTIAL_FILE] * partial.exists()
    if settings.resume and goes_on:
        return
    if found and not settings.restart:
        raise ResumeError(
            f"{folder} has an unfinished run ({' and '.join(found)}): go on with it (--resume), begin again and lose "
            "it (--restart), or name another out_dir"
        )
    if found:
        log.warning("%s: what is there of an unfinished run is removed", folder)
    if counts == "unfinished":
        partial.unlink(missing_ok=True)
    else:
        remove_unfinished(folder)


def _finish_publishing(folder: Path, restart: bool) -> None:
    if not is_done(folder):
        return
    log.info("%s: the files of a run that was done take their place", folder)
    try:
        publish(folder)
    except ResumeError:
        if not restart:
            raise
        remove_unfinished(folder)


def folder_of_counts(run_folder: Path) -> Path:
    """Where the latest counts are: a run whose merge step failed has its own, beside those of an earlier run.

    Takes the folder's lock if there is something to be finished first. Raises as `RunFolder` and `publish` do.
    """
    if is_done(run_folder):
        with RunFolder(run_folder):
            _finish_publishing(run_folder, restart=False)
    unfinished = run_folder / UNFINISHED
    counted = all((unfinished / name).is_file() for name in (COUNTS_FILE, RUN_FILE))
    return unfinished if counted else run_folder


def _has_large_counts(folder: Path) -> bool:
    """Whether there are counts, not made in a moment, of a run that is to come to its merges."""
    try:
        report = read_run(folder)
    except FormatError:
        return False
    meant_to_merge = "merging" not in report and not report.get("settings", {}).get("skip_merge")
    segmented = bool(report.get("counting", {}).get("segments"))
    return segmented and meant_to_merge and (folder / COUNTS_FILE).exists()


def find_counted(settings: Settings, fingerprint: Fingerprint) -> Counted | None:
    """Find out whether the corpus is counted already; never, if not `resume` is set.

    Raises `ResumeError` if what was counted is something else, or damaged.
    """
    folder = settings.out_dir
    if not settings.resume or folder is None or is_begun(folder / UNFINISHED):
        return None
    try:
        found = _read_counted(folder, UNFINISHED, fingerprint) or _read_counted(folder, "", fingerprint)
    except FormatError as error:
        raise ResumeError(f"{error}. To count again, begin with --restart") from error
    if found is None:
        log.info("%s has no unfinished run: this one begins at the beginning", folder)
    return found


def _read_counted(folder: Path, subfolder: str, fingerprint: Fingerprint) -> Counted | None:
    report, path = read_run(folder / subfolder), folder / subfolder / COUNTS_FILE
    told = report.get("counting", {}).get("fingerprint")
    if not told or not path.exists():
        return None
    if changes := fingerprint.differences_from_summary(told):
        raise ResumeError(
            f"the run in {folder} has counted something else: {'; '.join(changes)}. Put that back to go on with "
            "it, or begin again with --restart or in another out_dir"
        )
    counts = PretokenCounts.load(path)
    check_counts(report, counts, path)
    log.info("the corpus is counted already: going on with %s", path)
    return Counted(folder, counts, report, is_unfinished=subfolder == UNFINISHED)
