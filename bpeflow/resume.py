"""What an earlier run has left in the run folder: to go on with, to remove, or to be asked about."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpeflow.config import Settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.segments import SEGMENTS_FOLDER, is_begun, remove_segments
from bpeflow.errors import FormatError, ResumeError
from bpeflow.formats import gpt2
from bpeflow.partial_merges import PARTIAL_FILE, check_same_settings, merge_fingerprint
from bpeflow.report.run import RUN_FILE, check_counts, read_run
from bpeflow.run_folder import COUNTS_FILE
from bpeflow.vocab import Vocab

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Counted:
    """A run folder whose corpus is counted.

    Attributes:
        folder: its path.
        counts: the counts.
        report: ``run.json`` as it is there.
    """

    folder: Path
    counts: PretokenCounts
    report: dict[str, Any]

    def is_finished(self, settings: Settings) -> bool:
        """Whether nothing is left to be done. Raises `ResumeError` if it was done with other settings."""
        merging = self.report.get("merging")
        if settings.skip_merge:
            return True
        if merging is None or (self.folder / PARTIAL_FILE).exists():
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


def look_for_unfinished(folder: Path, settings: Settings, merging_only: bool = False) -> None:
    """See that nothing of an unfinished run is lost unasked: refuse it, or remove it if `restart` says so.

    With `merging_only` segments of counts are nobody's concern. Raises `ResumeError`.
    """
    if not merging_only and not is_begun(folder):
        remove_segments(folder)  # what a killed run left before its first manifest, or after the last
    found = [PARTIAL_FILE] if (folder / PARTIAL_FILE).exists() else []
    if not merging_only:
        found = [f"{SEGMENTS_FOLDER}/"] * is_begun(folder) + [COUNTS_FILE] * _has_large_counts(folder) + found
    if not found or settings.resume:
        return
    if not settings.restart:
        raise ResumeError(
            f"{folder} has an unfinished run ({' and '.join(found)}): go on with it (--resume), begin again and lose "
            "it (--restart), or name another out_dir"
        )
    log.warning("%s: what is there of an unfinished run is removed", folder)
    (folder / PARTIAL_FILE).unlink(missing_ok=True)
    if not merging_only:
        remove_segments(folder)


def _has_large_counts(folder: Path) -> bool:
    """Whether there are counts, not made in a moment, of a run that did not come to its merges."""
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
    if not settings.resume or folder is None or is_begun(folder):
        return None
    path = folder / COUNTS_FILE
    try:
        report = read_run(folder)
        told = report.get("counting", {}).get("fingerprint")
        if not told or not path.exists():
            log.info("%s has no unfinished run: this one begins at the beginning", folder)
            return None
        if changes := fingerprint.differences_from_summary(told):
            raise ResumeError(
                f"the run in {folder} has counted something else: {'; '.join(changes)}. Put that back to go on with "
                "it, or begin again with --restart or in another out_dir"
            )
        counts = PretokenCounts.load(path)
        check_counts(report, counts, path)
    except FormatError as error:
        raise ResumeError(f"{error}. To count again, begin with --restart") from error
    log.info("the corpus is counted already: going on with %s", path)
    return Counted(folder, counts, report)
