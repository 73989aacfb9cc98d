"""Publishing: a finished run replaces an earlier run's files, all of them at once, once all of its own are complete.

A run works in ``unfinished/`` and leaves the files above it alone. Writing its report there as ``done.json`` is the
point of no return: until then nothing has happened to the earlier files, and from then on they are replaced, by this
run or, if it is killed on the way, by the next run in the folder. `publish` is idempotent and may be interrupted
between any two steps: a file that the report lists but ``unfinished/`` lacks has already been moved, or was to be kept
(the counts that vocabularies were learned from, in the same folder).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from bpeflow._util.atomic import make_folder, remove_parts, sync_folder
from bpeflow.counting.segments import has_segments, remove_segments
from bpeflow.errors import FormatError, ResumeError
from bpeflow.run_dir.layout import (
    CHECKPOINT_FILE,
    DONE_FILE,
    REPORT_FILE,
    RUN_FILES,
    SEGMENTS,
    SETTINGS_FILE,
    UNFINISHED,
    VOCAB_FILES,
    Phase,
    inspect,
)
from bpeflow.run_dir.run_report import read_files


def publish(folder: Path) -> None:
    """Replace an earlier run's files by those of a run that is done. The caller holds the folder's lock.

    The earlier report is removed first and the new one is moved last, so a folder with a report has the files of one
    run only.

    Raises:
        ResumeError: the report of the run that is done is damaged.
        OSError: a file cannot be moved or removed.
    """
    unfinished = folder / UNFINISHED
    try:
        mentioned = {Path(name) for name in read_files(unfinished, DONE_FILE)}
    except FormatError as error:
        raise ResumeError(f"{unfinished / DONE_FILE} is damaged: start over with --restart") from error
    new = [path.relative_to(unfinished) for path in _found(unfinished, RUN_FILES) if path.name != REPORT_FILE]
    kept = mentioned - {*new}
    _remove(folder, [path for path in _found(folder, RUN_FILES) if path.relative_to(folder) not in kept])
    for name in new:
        make_folder((folder / name).parent)
        (unfinished / name).replace(folder / name)
    for parent in {folder, *((folder / name).parent for name in new)}:
        sync_folder(parent)
    _empty(unfinished)
    (unfinished / DONE_FILE).replace(folder / REPORT_FILE)
    sync_folder(folder)
    remove_unfinished(folder)


def remove_unfinished(folder: Path) -> None:
    """Remove everything that a run left in ``unfinished/``, durably."""
    unfinished = folder / UNFINISHED
    if unfinished.is_dir():
        _empty(unfinished)
        remove_files(unfinished, [DONE_FILE])
        with suppress(OSError):  # not empty
            unfinished.rmdir()
        sync_folder(folder)


def _empty(unfinished: Path, *kept: str) -> None:
    """Remove everything but the report of a run that is done, and the files named."""
    remove_segments(unfinished / SEGMENTS)
    remove_parts(unfinished)
    remove_files(unfinished, [name for name in (CHECKPOINT_FILE, *RUN_FILES, SETTINGS_FILE) if name not in kept])
    for subfolder in unfinished.glob("vocab_*"):  # emptied by publishing
        with suppress(OSError):
            subfolder.rmdir()


def remove_useless(folder: Path, *, failed: bool = False) -> None:
    """Remove the parts of a run that cannot be resumed, such as a partial set of vocabularies.

    If nothing but the settings of a run would be left, they are kept, unless it has `failed`.
    """
    unfinished = folder / UNFINISHED
    with suppress(OSError):  # empty: try this first, as it needs no memory
        unfinished.rmdir()
    remove_files(unfinished, VOCAB_FILES)
    if not has_segments(unfinished / SEGMENTS):
        remove_segments(unfinished / SEGMENTS)
    state = inspect(folder)
    if not state.in_progress or (failed and state.phase is Phase.STARTED):
        remove_unfinished(folder)
    elif state.phase is Phase.STARTED:
        _empty(unfinished, SETTINGS_FILE)


def remove_files(folder: Path, patterns: Sequence[str]) -> None:
    """Remove the files that match these globs, durably."""
    _remove(folder, _found(folder, patterns))


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _remove(folder: Path, paths: Iterable[Path]) -> None:
    """Remove files in a folder, and subfolders that become empty."""
    parents = set()
    for path in paths:
        path.unlink(missing_ok=True)
        parents.add(path.parent)
    for parent in parents - {folder}:
        with suppress(OSError):  # not empty
            parent.rmdir()
    for parent in {*parents, folder} if parents else ():
        sync_folder(parent)
