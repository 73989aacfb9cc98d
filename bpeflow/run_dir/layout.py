"""The names of all files in a run folder.

runs/owt/
  run.json                   the report of the finished run (`run_dir.report`)
  counts.npz                 its pre-token counts
  vocab.json, merges.txt, …  its tokenizer
  vocab_16000/               a smaller vocabulary of the same run
  monitor.jsonl              samples of the queue monitor
  report.html                the run as a page (`reporting`)
  .lock                      held while a run is at work; names the process and its scratch folder
  unfinished/                what that run has written so far, under the same names, and:
    settings.json            its settings, written first (`run_dir.recorded`)
    segments/                counts of finished segments of the corpus (`counting.segments`)
    merges.partial           merges learned so far (`run_dir.checkpoint`)
    done.json                the report of a run whose results are complete but not yet published
"""

from __future__ import annotations

from bpeflow.counting.manifest import MANIFEST_FILE
from bpeflow.formats.any_format import FORMATS

__all__ = [
    "CHECKPOINT_FILE",
    "COUNTS_FILE",
    "DONE_FILE",
    "LOCK_FILE",
    "MANIFEST_FILE",
    "MONITOR_FILE",
    "PAGE_FILE",
    "REPORT_FILE",
    "RUN_FILES",
    "SEGMENTS",
    "SETTINGS_FILE",
    "UNFINISHED",
    "VOCAB_FILES",
    "vocab_subfolder",
]

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
