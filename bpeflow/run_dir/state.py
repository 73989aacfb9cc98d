"""What is in a run folder: `inspect` answers for everyone who reads, resumes, replaces or cleans it up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bpeflow.counting.segments import has_segments
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    COUNTS_FILE,
    DONE_FILE,
    REPORT_FILE,
    SEGMENTS,
    SETTINGS_FILE,
    UNFINISHED,
)


class Phase(Enum):
    """How far a run has come.

    Attributes:
        FRESH: nothing to resume.
        STARTED: only the settings are recorded.
        COUNTING: some segments of the corpus are counted.
        COUNTED: the whole corpus is counted.
        LEARNING: some merges are learned.
        DONE: the results are complete.
    """

    FRESH = "fresh"
    STARTED = "started"
    COUNTING = "counting"
    COUNTED = "counted"
    LEARNING = "learning"
    DONE = "done"


@dataclass(frozen=True)
class RunState:
    """The state of the latest run in a folder.

    Attributes:
        phase: how far it has come.
        in_progress: whether it is the run in ``unfinished/``: interrupted, failed, or still at work (its lock is the
            holder's business). False for the finished run of the folder itself.
        counts: the folder of the latest finished counts and their report, ``unfinished/`` first; or None.
    """

    phase: Phase
    in_progress: bool = False
    counts: Path | None = None


def inspect(folder: Path) -> RunState:
    """Find out which run is in a folder, and how far it has come; from the names of its files alone.

    A run in ``unfinished/`` comes before the finished run that it is about to replace.
    """
    unfinished = folder / UNFINISHED
    own_counts = unfinished if _has_counts(unfinished) else None
    counts = own_counts or (folder if _has_counts(folder) else None)
    if (unfinished / DONE_FILE).exists():
        return RunState(Phase.DONE, True, counts)
    if has_segments(unfinished / SEGMENTS):
        return RunState(Phase.COUNTING, True, counts)
    if (unfinished / CHECKPOINT_FILE).exists():
        return RunState(Phase.LEARNING, True, counts)
    if own_counts is not None:
        return RunState(Phase.COUNTED, True, own_counts)
    if (unfinished / SETTINGS_FILE).exists():
        return RunState(Phase.STARTED, True, counts)
    if (folder / REPORT_FILE).exists():
        return RunState(Phase.DONE, False, counts)
    return RunState(Phase.FRESH, False, counts)


def _has_counts(folder: Path) -> bool:
    return (folder / COUNTS_FILE).is_file() and (folder / REPORT_FILE).is_file()
