"""The run folder: the names of all its files, and what is in it.

runs/mine/
  run.json                   the report of the finished run (`run_dir.run_files`)
  counts.npz                 its pre-token counts
  vocab.json, merges.txt, …  its tokenizer
  vocab_16000/               a smaller vocabulary of the same run
  first_stage/               with superwords: the finished run that learned the first stage, with the same files
  monitor.jsonl              samples of the queue monitor
  report.html                the run as a page (`look`)
  .lock                      held while a run is at work; names the process and its scratch folder
  unfinished/                what that run has written so far, under the same names, and:
    settings.json            its settings, written first (`run_dir.run_files`)
    segments/                counts of finished segments of the corpus (`counting.segments`)
    merges.partial           merges learned so far (`run_dir.run_files`)
    first_stage/             with superwords: the folder of that run, finished or not
    done.json                the report of a run whose results are complete but not yet published

`Phase` says what may be in a folder, for everyone who reads, resumes, replaces or cleans it up.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from bpeflow.counting.fingerprint import has_segments
from bpeflow.formats.any_format import FORMATS, RUN_MARKS

#: The report of a finished run, and the subfolder in which a run works until its results are complete.
REPORT_FILE, UNFINISHED = RUN_MARKS
COUNTS_FILE = "counts.npz"
MONITOR_FILE = "monitor.jsonl"
PAGE_FILE = "report.html"
LOCK_FILE = ".lock"

SETTINGS_FILE = "settings.json"
DONE_FILE = "done.json"
CHECKPOINT_FILE = "merges.partial"

#: The subfolder of the run that learned the first stage of a tokenizer with superwords.
FIRST_STAGE = "first_stage"

#: The folder of finished segments, in `UNFINISHED`.
SEGMENTS = "segments"

_TOKENIZER_FILES = tuple(name for known in FORMATS for name in known.all_files)

#: Globs of all tokenizer files, in every format and for every vocabulary size.
VOCAB_FILES = (*_TOKENIZER_FILES, *(f"vocab_*/{name}" for name in _TOKENIZER_FILES))

#: Globs of what a run leaves before it learns, superwords if it has them: learning again needs these files.
COUNTED_FILES = (
    COUNTS_FILE,
    MONITOR_FILE,
    *(f"{FIRST_STAGE}/{name}" for name in (REPORT_FILE, COUNTS_FILE, MONITOR_FILE, PAGE_FILE, *_TOKENIZER_FILES)),
)

#: Globs of everything that a finished run leaves, the report first.
RUN_FILES = (REPORT_FILE, *COUNTED_FILES, PAGE_FILE, *VOCAB_FILES)


def vocab_subfolder(size: int) -> str:
    """Return the subfolder of a vocabulary smaller than the largest of its run: ``"vocab_16000"``."""
    return f"vocab_{size}"


def is_of_run(path: Path) -> bool:
    """Return whether a file is one of a run that something is read from: any but the page."""
    is_named_so = path.name != PAGE_FILE and any(path.match(pattern) for pattern in RUN_FILES)
    return is_named_so and any((folder / REPORT_FILE).exists() for folder in path.resolve().parents[:2])


class Phase(IntEnum):
    """How far the unfinished run in a folder has come.

    ===========  ==============================  ===========================  ============================
    phase        files in ``unfinished/``        a new run                    a new run with `resume`
    ===========  ==============================  ===========================  ============================
    NONE                                         starts                       starts
    STARTED      settings.json                   starts                       starts
    FIRST_STAGE  first_stage/ with counts,       is refused                   resumes the first stage, if it
                 segments or merges                                           is not finished, and counts
    COUNTING     segments/                       is refused                   counts what is left
    COUNTED      counts.npz, run.json            is refused                   learns from the counts
    LEARNING     merges.partial                  is refused                   learns the merges that are left
    DONE         done.json                       publishes these results, and continues as with a finished run
    ===========  ==============================  ===========================  ============================

    Where a run is refused, `restart` discards the unfinished run and starts a new one. The results of a finished run
    stay until the files of a new run are complete. Replacing them takes `overwrite`; an unfinished run beyond STARTED
    was started with it. If they are what a run with `resume` asks for, the run has nothing left to do.
    """

    NONE = 0
    STARTED = 1
    FIRST_STAGE = 2
    COUNTING = 3
    COUNTED = 4
    LEARNING = 5
    DONE = 6


def phase_of(folder: Path) -> Phase:
    """Find out how far the unfinished run in a folder has come, from the names of its files alone."""
    unfinished = folder / UNFINISHED
    if (unfinished / DONE_FILE).exists():
        return Phase.DONE
    if has_segments(unfinished / SEGMENTS):
        return Phase.COUNTING
    if (unfinished / CHECKPOINT_FILE).exists():
        return Phase.LEARNING
    if has_counts(unfinished):
        return Phase.COUNTED
    if has_first_stage(unfinished):
        return Phase.FIRST_STAGE
    return Phase.STARTED if (unfinished / SETTINGS_FILE).exists() else Phase.NONE


def has_counts(folder: Path) -> bool:
    """Return whether a run has completed its counts in a folder."""
    return (folder / COUNTS_FILE).is_file() and (folder / REPORT_FILE).is_file()


def has_first_stage(unfinished: Path) -> bool:
    """Return whether an unfinished run has a first stage that is finished, or that can be resumed."""
    folder = unfinished / FIRST_STAGE
    return folder.is_dir() and (has_counts(folder) or phase_of(folder) > Phase.STARTED)


def start_over(folder: Path) -> str:
    """Say which setting, and not `resume`, discards the run whose results are in a folder and starts another one."""
    setting = "restart" if UNFINISHED in folder.parts[-2:] else "overwrite"
    return f"{setting}=True in place of resume=True"


def same_folder(one: Path | None, other: Path | None) -> bool:
    """Return whether two paths are known and name the same folder."""
    return one is not None and other is not None and one.resolve() == other.resolve()
