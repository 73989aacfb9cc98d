"""The journal of an encoding, from which an interrupted one resumes.

It is a hidden file beside the token files, ``.train.bin.ckpt.NUMBER.part``, with the number that all temporary files of
the set have in their names. It is locked by the process that writes the set. It is empty at first, so a short encoding
leaves nothing to resume. Then come lines of JSON, each with its checksum:

==============  ========================================================================================================
checkpoints     one every `INTERVAL` seconds: the place in the corpus, statistics, and the lengths and checksums of all
                token files, which are on disk up to these lengths. The `Fingerprint` of the encoding is a line before
                the first one.
the last line   written when all token files are complete and on disk: the names that they get from then on, and the
                earlier files to remove. If the process is killed meanwhile, the next one completes that.
==============  ========================================================================================================

A token file only grows, so it is truncated to the last checkpoint to resume from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

from bpeflow._util.atomic import (
    checksummed,
    make_folder,
    name_errors,
    publish,
    sync_file,
    sync_folder,
    temporary_path,
    verified,
)
from bpeflow._util.file_lock import open_locked
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.token_set import TokenSet
from bpeflow.errors import AlreadyExistsError, FolderInUseError, ResumeError
from bpeflow.flow.shared import Descriptor, write_all

#: Seconds between two checkpoints. More: more work is lost. Fewer: more waiting for the disk.
INTERVAL = 30.0

#: The key of the names of token files in the last line.
_PUBLISH = "publish"

#: Larger than any process id, so the number of a set is not one of other temporary files (see `temporary_path`).
_MOST_PROCESSES = 1 << 22


def _read(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """Return the lines of a journal with their sizes. What follows a damaged line was not durable."""
    lines = []
    with suppress(OSError, ValueError), journal.open("rb") as file:
        for line in file:
            lines.append((verified(json.loads(line)), len(line)))  # noqa: PERF401 -- those before a damaged one stay
    return lines


class Journal:
    """The journal of a set of token files, locked by this process, and the files that it writes.

    Attributes:
        checkpoint: the last one, where the encoding resumes; None if it starts.
        kept: whether it can be resumed if it fails now.
    """

    def __init__(self, path: Path, owner: int, fingerprint: Fingerprint | None, file: Descriptor) -> None:
        self._lines = _read(path)
        self.checkpoint = self._lines[-1][0] if len(self._lines) > 1 else None
        self.kept = self.checkpoint is not None
        self._path, self._owner, self._fingerprint, self._file = path, owner, fingerprint, file
        self._files: dict[Path, Path] = {}  # temporary paths by the files' own
        self._next = monotonic() + INTERVAL

    def new(self, path: Path) -> Path:
        """Return the temporary path of a file of the set. The first one gets its name last."""
        temporary = self._files[path] = temporary_path(path, self._owner)
        return temporary

    def resume(self, tokens: TokenSet) -> None:
        """Continue after the last checkpoint with the option `resume`; else start, and remove what a dead process left.

        Raises `ResumeError` if the interrupted encoding has another fingerprint, and `AlreadyExistsError` if it would
        be lost.
        """
        options, interrupted = tokens.options, self.checkpoint
        if interrupted is None or not options.resume or self._fingerprint is None:
            if interrupted is not None and not options.overwrite:
                raise AlreadyExistsError(
                    f"{tokens.path}: an encoding was interrupted after {interrupted['tokens']:,} tokens; give "
                    "resume=True to continue it, or overwrite=True to start over"
                )
            self.checkpoint, self.kept, self._lines = None, False, []
        elif changes := self._fingerprint.differences(Fingerprint(**self._lines[0][0])):
            raise ResumeError(
                f"{tokens.path}: the interrupted encoding is of something else ({'; '.join(changes)}). Undo the change "
                "to resume it, or start over with overwrite=True and without resume"
            )
        os.ftruncate(self._file.fileno(), sum(size for _, size in self._lines))
        if self.checkpoint is None:
            self._remove_parts()

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._fingerprint is not None and monotonic() >= self._next

    def save(self, state: Mapping[str, Any]) -> None:
        """Flush the token files to disk, and append a checkpoint. Raises `OSError`."""
        self._sync()
        if not self.kept and self._fingerprint is not None:
            self._append(asdict(self._fingerprint))
        self._append(state)
        self.kept = True
        self._next = monotonic() + INTERVAL

    def commit(self, tokens: TokenSet) -> None:
        """Flush the complete token files to disk, and note that they replace earlier ones. Raises `OSError`."""
        stale = [*tokens.stale_files(self._files)]
        self._sync()
        self._append({_PUBLISH: [path.name for path in reversed(self._files)], "stale": [path.name for path in stale]})

    def discard(self) -> None:
        """Remove the journal, and then all that it is about."""
        with suppress(OSError):  # the error that led here matters more
            self._path.unlink(missing_ok=True)
            self._remove_parts()

    def _remove_parts(self) -> None:
        """Remove the temporary files of this process, and of a dead one."""
        found = self._path.parent.glob(f".*.{self._owner}.part")
        for part in {*found, *self._files.values()} - {self._path}:
            part.unlink(missing_ok=True)

    def _sync(self) -> None:
        for path, temporary in self._files.items():
            with name_errors(path, temporary):
                sync_file(temporary)

    def _append(self, values: Mapping[str, Any]) -> None:
        sync_folder(self._path.parent)  # names before the line that mentions them
        with name_errors(self._path):
            write_all(self._file, json.dumps(checksummed(values)).encode() + b"\n")
            os.fsync(self._file.fileno())


def finish_publishing(tokens: TokenSet) -> None:
    """Complete an encoding that was killed while its token files got their names.

    Raises `FolderInUseError` if another process is writing the set, and `OSError`.
    """
    path, owner = place_of_journal(tokens)
    if path.exists():
        with closing(_lock(path, tokens)):
            _publish(path, owner, tokens.path.parent)


def _publish(journal: Path, owner: int, folder: Path) -> bool:
    """Give the token files their names, and remove the journal. Returns whether its last line notes any."""
    lines = _read(journal)
    if not lines or _PUBLISH not in lines[-1][0]:
        return False
    last = lines[-1][0]
    files = {folder / name: temporary_path(folder / name, owner) for name in last[_PUBLISH]}
    left = {file: temporary for file, temporary in files.items() if temporary.exists()}
    stale = [folder / name for name in last["stale"]]
    publish(left, [file for file in stale if file in left or file not in files])
    journal.unlink()
    return True


def place_of_journal(tokens: TokenSet) -> tuple[Path, int]:
    """Return the path of the journal of a set of token files, and the number in the names of its temporary files."""
    target = Path(os.path.realpath(tokens.path))
    owner = _MOST_PROCESSES + crc32(os.fsencode(target.name))
    for file in tokens.files_of(tokens.first):
        temporary_path(file, owner)  # now, not after the work: some names are longer than the first one
    return temporary_path(target.with_name(f"{target.name}.ckpt"), owner), owner


@contextmanager
def open_journal(tokens: TokenSet, fingerprint: Fingerprint | None) -> Iterator[Journal]:
    """Lock the journal of a set of token files, which is made if it is missing, and resume it (see `Journal.resume`).

    After the block, its files get their names. If the block fails, they are removed, unless there is a checkpoint.
    Without a fingerprint there are none. Raises `FolderInUseError` if another process is writing the set, as
    `Journal.resume` does, and `OSError`.
    """
    path, owner = place_of_journal(tokens)
    made: list[Path] = []
    try:
        made = make_folder(path.parent)
        with closing(_lock(path, tokens)) as locked:
            journal = Journal(path, owner, fingerprint, locked)
            try:
                journal.resume(tokens)
                yield journal
                journal.commit(tokens)
            except BaseException as error:
                if journal.kept and not isinstance(error, ResumeError | AlreadyExistsError):
                    # Shown by Python 3.11 and later, and by the command line.
                    error.__notes__ = [f"{tokens.path}: to continue, repeat this with resume=True"]  # type: ignore[attr-defined,unused-ignore]
                raise
            finally:
                try:
                    is_complete = _publish(path, owner, tokens.path.parent)
                except KeyboardInterrupt:
                    _publish(path, owner, tokens.path.parent)  # earlier files are gone already
                    raise
                if not (is_complete or journal.kept):
                    journal.discard()
    finally:
        _remove_if_empty(path)
        for folder in made:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _lock(path: Path, tokens: TokenSet) -> Descriptor:
    try:
        with name_errors(tokens.first, path):
            return open_locked(path)
    except BlockingIOError:
        raise FolderInUseError(
            f"{tokens.path}: another process is writing these token files: wait for it to end, or stop it"
        ) from None


def _remove_if_empty(path: Path) -> None:
    """Remove the journal, if Ctrl-C came while it was being made or removed."""
    with suppress(OSError), path.open("rb"), closing(open_locked(path)) as file:
        if not os.fstat(file.fileno()).st_size:
            path.unlink()
