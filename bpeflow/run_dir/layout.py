"""The run folder: the names of all its files, and what is in it.

runs/owt/
  run.json                   the report of the finished run (`run_dir.run_report`)
  counts.npz                 its pre-token counts
  vocab.json, merges.txt, …  its tokenizer
  vocab_16000/               a smaller vocabulary of the same run
  monitor.jsonl              samples of the queue monitor
  report.html                the run as a page (`look`)
  .lock                      held while a run is at work; names the process and its scratch folder
  unfinished/                what that run has written so far, under the same names, and:
    settings.json            its settings, written first (`run_dir.recorded`)
    segments/                counts of finished segments of the corpus (`counting.segments`)
    merges.partial           merges learned so far (`run_dir.checkpoint`)
    done.json                the report of a run whose results are complete but not yet published

`inspect` says what is in a folder, for everyone who reads, resumes, replaces or cleans it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bpeflow.counting.segments import has_segments
from bpeflow.formats.any_format import FORMATS

REPORT_FILE = "run.json"
COUNTS_FILE = "counts.npz"
MONITOR_FILE = "monitor.jsonl"
PAGE_FILE = "report.html"
LOCK_FILE = ".lock"

#: The subfolder in which a run works until its results are complete.
UNFINISHED = "unfinished"
SETTINGS_FILE = "settings.json"
DONE_FILE = "done.json"
CHECKPOINT_FILE = "merges.partial"

#: The folder of finished segments, in `UNFINISHED`.
SEGMENTS = "segments"

_TOKENIZER_FILES = tuple(name for known in FORMATS for name in known.all_files)

#: Globs of all tokenizer files, in every format and for every vocabulary size.
VOCAB_FILES = (*_TOKENIZER_FILES, *(f"vocab_*/{name}" for name in _TOKENIZER_FILES))

#: Globs of everything that a finished run leaves, the report first.
RUN_FILES = (REPORT_FILE, COUNTS_FILE, MONITOR_FILE, PAGE_FILE, *VOCAB_FILES)


def vocab_subfolder(size: int) -> str:
    """Return the subfolder of a vocabulary smaller than the largest of its run: ``"vocab_16000"``."""
    return f"vocab_{size}"


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
