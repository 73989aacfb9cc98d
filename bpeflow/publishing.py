"""How the files of a run take the place of an earlier run's: all of them, and only when all of them are whole.

    runs/owt/
      run.json, counts.npz, vocab.json …   of a run that is finished, if there was one
      unfinished/                          of the one at work: the same names, and what it would go on with if it failed
        done.json                          its report, once all else in there is whole and on the disk

A run works in `unfinished/`, and what stands above stays as it is. The report named `done.json` is the point of no
return: before it nothing has happened to the earlier run's files, and after it they are replaced, whoever does it. If
the run is killed on the way, the next one in the folder begins with the rest of it. So `publish` may be cut off
between any two of its steps and be done again: what the report names and `unfinished/` has not, is in its place already
or was to be kept (the counts that vocabularies were learned from, in the same folder).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from bpeflow import formats
from bpeflow.atomic import make_folder, remove_parts, sync_folder
from bpeflow.counting.segments import is_begun, remove_segments
from bpeflow.errors import FormatError, ResumeError
from bpeflow.partial_merges import PARTIAL_FILE
from bpeflow.report.run import RUN_FILE, read_run

UNFINISHED = "unfinished"
DONE_FILE = "done.json"
COUNTS_FILE = "counts.npz"
MONITOR_FILE = "monitor.jsonl"
_TOKENIZER_FILES = tuple(name for known in formats.FORMATS for name in known.files)
VOCAB_FILES = (*_TOKENIZER_FILES, *(f"vocab_*/{name}" for name in _TOKENIZER_FILES))
#: All that a run leaves; the report first.
RUN_FILES = (RUN_FILE, COUNTS_FILE, MONITOR_FILE, *VOCAB_FILES)


def is_done(folder: Path) -> bool:
    """Whether a run in this run folder is done, but has not come to the end of `publish`."""
    return (folder / UNFINISHED / DONE_FILE).exists()


def publish(folder: Path) -> None:
    """Put the files of a run that is done in the place of an earlier run's. For the holder of the folder's lock.

    The earlier report goes first, and the new one comes last: a folder with a report has the files of one run. Raises
    `ResumeError` if the report of the run that is done is damaged.
    """
    unfinished = folder / UNFINISHED
    try:
        mentioned = {Path(name) for name in read_run(unfinished, DONE_FILE)["files"]}
    except (FormatError, KeyError, TypeError) as error:
        raise ResumeError(f"{unfinished / DONE_FILE} is damaged: begin again with --restart") from error
    new = [path.relative_to(unfinished) for path in _found(unfinished, RUN_FILES) if path.name != RUN_FILE]
    kept = mentioned - {*new}
    _remove(folder, [path for path in _found(folder, RUN_FILES) if path.relative_to(folder) not in kept])
    for name in new:
        make_folder((folder / name).parent)
        (unfinished / name).replace(folder / name)
    for parent in {folder, *((folder / name).parent for name in new)}:
        sync_folder(parent)
    _empty(unfinished)
    (unfinished / DONE_FILE).replace(folder / RUN_FILE)
    sync_folder(folder)
    remove_unfinished(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove what a run has left in `unfinished/`, for good."""
    unfinished = folder / UNFINISHED
    if unfinished.is_dir():
        _empty(unfinished)
        remove_files(unfinished, [DONE_FILE])
        with suppress(OSError):  # something else is in it
            unfinished.rmdir()
        sync_folder(folder)


def _empty(unfinished: Path) -> None:
    """Remove all there but the report of a run that is done."""
    remove_segments(unfinished)
    remove_parts(unfinished, (DONE_FILE, PARTIAL_FILE, *RUN_FILES))
    remove_files(unfinished, (PARTIAL_FILE, *RUN_FILES))
    for subfolder in unfinished.glob("vocab_*"):  # whose files have gone elsewhere
        with suppress(OSError):
            subfolder.rmdir()


def remove_useless(folder: Path) -> None:
    """Remove of a run that has failed what nobody would go on with: half a set of vocabularies, or all there is.

    Segments, too, if it was killed before the first manifest or after the last.
    """
    unfinished = folder / UNFINISHED
    with suppress(OSError):  # nothing is in it: that needs no memory, while to look into it does
        unfinished.rmdir()
    remove_files(unfinished, VOCAB_FILES)
    if not is_begun(unfinished):
        remove_segments(unfinished)
    counted = all((unfinished / name).exists() for name in (COUNTS_FILE, RUN_FILE))
    if not (counted or is_begun(unfinished) or (unfinished / PARTIAL_FILE).exists()):
        remove_unfinished(folder)


def remove_files(folder: Path, patterns: Sequence[str]) -> None:
    """Remove files of these names, or globs, for good."""
    _remove(folder, _found(folder, patterns))


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _remove(folder: Path, paths: Iterable[Path]) -> None:
    """Remove files in a folder, and the subfolders that they leave empty."""
    parents = set()
    for path in paths:
        path.unlink(missing_ok=True)
        parents.add(path.parent)
    for parent in parents - {folder}:
        with suppress(OSError):  # something else is in it
            parent.rmdir()
    for parent in {*parents, folder} if parents else ():
        sync_folder(parent)
