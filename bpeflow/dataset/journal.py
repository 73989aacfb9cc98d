"""The journal of an encoding, from which an interrupted one resumes.

It is a hidden file beside the token files, ``.train.bin.ckpt.NUMBER.part``, with the number that all temporary files of
the set have in their names. It is locked by the process that writes the set. It is empty at first, so a short encoding
leaves nothing to resume. Then come lines of JSON, each with its checksum:

==============  ========================================================================================================
checkpoints     one every `INTERVAL` seconds: the place in the corpus, statistics, and the lengths and checksums of the
                parts that have changed since the checkpoint before. The token files are on disk up to these lengths.
                The `Fingerprint` of the encoding is a line before the first one.
the last line   written when all token files are complete and on disk: the names that they get from then on, and the
                earlier files to remove. If the process is killed meanwhile, the next one completes that.
==============  ========================================================================================================

A token file only grows, so it is truncated to the last checkpoint to resume from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

from bpeflow._util.atomic import (
    checksummed,
    make_folder,
    name_errors,
    publish,
    sync_folder,
    temporary_path,
    verified,
)
from bpeflow._util.file_lock import open_locked
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.token_set import TokenSet
from bpeflow.errors import AlreadyExistsError, FolderInUseError, ResumeError
from bpeflow.flow.shared import Descriptor

#: Seconds between two checkpoints. More: more work is lost. Fewer: more waiting for the disk.
INTERVAL = 30.0

#: The key of the names of token files in the last line.
_PUBLISH = "publish"

#: Larger than any process id, so the number of a set is not one of other temporary files (see `temporary_path`).
_MOST_PROCESSES = 1 << 22


@dataclass
class Checkpoint:
    """What a journal says.

    Attributes:
        fingerprint: everything that the encoding depends on.
        state: the last checkpoint without its parts.
        parts: of each split, the state of each token file (see `TokenWriter.state`).
        size: bytes of the journal up to the last whole line.
    """

    fingerprint: Fingerprint
    state: Mapping[str, Any]
    parts: dict[str, list[list[Any]]]
    size: int

    @classmethod
    def read(cls, journal: Path) -> Checkpoint | None:
        """Read a journal; None if it has no checkpoint."""
        (fingerprint, size), *lines = _read(journal) or [({}, 0)]
        state: Mapping[str, Any] = {}
        parts: dict[str, list[list[Any]]] = {}
        for state, length in lines:
            size += length
            for split, (first, states) in state["parts"].items():
                parts.setdefault(split, [])[first:] = states
        return cls(Fingerprint(**fingerprint), state, parts, size) if state else None


def _read(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """Return the lines of a journal with their sizes. What follows a damaged line was not durable."""
    lines = []
    with suppress(OSError, ValueError), journal.open("rb") as file:
        for line in file:
            lines.append((verified(json.loads(line)), len(line)))  # noqa: PERF401 -- those before a damaged one stay
    return lines


class Journal:
    """The journal of a set of token files, locked by this process.

    Attributes:
        owner: the number in the names of the temporary files.
        checkpoint: where the encoding resumes; None if it starts.
        kept: whether it can be resumed if it fails now.
    """

    def __init__(self, path: Path, owner: int, fingerprint: Fingerprint | None, file: Descriptor) -> None:
        self.path, self.owner = path, owner
        self.checkpoint = Checkpoint.read(path)
        self.kept = self.checkpoint is not None
        self._fingerprint, self._file = fingerprint, file
        self._next = monotonic() + INTERVAL

    def resume(self, tokens: TokenSet) -> None:
        """Continue after the last checkpoint with the option `resume`; else start, and remove what a dead process left.

        Raises `ResumeError` if the interrupted encoding has another fingerprint, and `AlreadyExistsError` if it would
        be lost.
        """
        options, interrupted = tokens.options, self.checkpoint
        if interrupted is None or not options.resume or self._fingerprint is None:
            if interrupted is not None and not options.overwrite:
                raise AlreadyExistsError(
                    f"{tokens.path}: an encoding was interrupted after {interrupted.state['tokens']:,} tokens; give "
                    "resume=True to continue it, or overwrite=True to start over"
                )
            self.checkpoint, self.kept = None, False
            for part in self.path.parent.glob(f".*.{self.owner}.part"):
                if part != self.path:
                    part.unlink(missing_ok=True)
        elif changes := self._fingerprint.differences(interrupted.fingerprint):
            raise ResumeError(
                f"{tokens.path}: the interrupted encoding is of something else ({'; '.join(changes)}). Undo the change "
                "to resume it, or start over with overwrite=True and without resume"
            )
        os.ftruncate(self._file.fileno(), 0 if self.checkpoint is None else self.checkpoint.size)

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._fingerprint is not None and monotonic() >= self._next

    def save(self, state: Mapping[str, Any]) -> None:
        """Append a checkpoint. What it says must be on disk already, but for the files' names. Raises `OSError`."""
        if not self.kept and self._fingerprint is not None:
            self._append(asdict(self._fingerprint))
        self._append(state)
        self.kept = True
        self._next = monotonic() + INTERVAL

    def publish(self, names: Iterable[Path], stale: Iterable[Path]) -> None:
        """Note that the token files are on disk, and get these names in this order, after stale ones are removed."""
        self._append({_PUBLISH: [path.name for path in names], "stale": [path.name for path in stale]})

    def _append(self, values: Mapping[str, Any]) -> None:
        sync_folder(self.path.parent)  # names before the line that mentions them
        text = json.dumps(checksummed(values)).encode() + b"\n"
        with name_errors(self.path):
            while text:
                text = text[os.write(self._file.fileno(), text) :]
            os.fsync(self._file.fileno())


def finish_publishing(tokens: TokenSet) -> None:
    """Complete an encoding that was killed while its token files got their names.

    Raises `FolderInUseError` if another process is writing the set, and `OSError`.
    """
    path, owner = place_of_journal(tokens)
    if not path.exists():
        return
    with closing(_lock(path, tokens)):
        lines = _read(path)
        if not lines or _PUBLISH not in lines[-1][0]:
            return
        last, folder = lines[-1][0], tokens.path.parent
        files = {folder / name: temporary_path(folder / name, owner) for name in last[_PUBLISH]}
        left = {file: temporary for file, temporary in files.items() if temporary.exists()}
        stale = [folder / name for name in last["stale"]]
        publish(left, [file for file in stale if file in left or file not in files])
        path.unlink()


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

    It is removed after the block unless that fails and has a checkpoint. Without a fingerprint there are none. Raises
    `FolderInUseError` if another process is writing the set, and as `Journal.resume` does.
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
                journal.kept = False
            except BaseException as error:
                if journal.kept and not isinstance(error, ResumeError | AlreadyExistsError):
                    # Shown by Python 3.11 and later, and by the command line.
                    error.__notes__ = [f"{tokens.path}: to continue, repeat this with resume=True"]  # type: ignore[attr-defined,unused-ignore]
                raise
            finally:
                if not journal.kept:
                    with suppress(OSError):  # the error of the block matters more
                        path.unlink(missing_ok=True)
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
