"""The journal of an encoding, from which an interrupted one resumes.

It is a hidden file beside the token files, ``.train.bin.ckpt.NUMBER.part``, with the number that all temporary files of
the set have in their names. It is locked by the process that writes the set. It is empty at first, so a short encoding
leaves nothing to resume. Then come lines of JSON, each with its checksum:

==============  ========================================================================================================
the first line  the `Fingerprint` of the encoding
checkpoints     one every `INTERVAL` seconds: the place in the corpus, statistics, and the lengths and checksums of the
                parts that have changed since the checkpoint before. The token files are on disk up to these lengths.
the last line   written before the token files get their names, as some of them may have theirs from then on
==============  ========================================================================================================

A token file only grows, so it is truncated to the last checkpoint to resume from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

from bpeflow._util.atomic import (
    checksummed,
    make_folder,
    name_errors,
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
        publishing: whether token files may have their names already.
    """

    fingerprint: Fingerprint
    state: Mapping[str, Any] = field(default_factory=dict)
    parts: dict[str, list[list[int]]] = field(default_factory=dict)
    size: int = 0
    publishing: bool = False

    @classmethod
    def read(cls, journal: Path) -> Checkpoint | None:
        """Read a journal; None if it has no checkpoint. What follows a damaged line was not durable."""
        with suppress(OSError, ValueError, KeyError, TypeError), journal.open("rb") as lines:
            line = next(lines, b"")
            checkpoint = cls(Fingerprint(**verified(json.loads(line))), size=len(line))
            with suppress(ValueError):
                for line in lines:
                    checkpoint._add(verified(json.loads(line)), len(line))
            return checkpoint if checkpoint.state else None
        return None

    def _add(self, values: dict[str, Any], size: int) -> None:
        self.publishing = "parts" not in values
        for split, (first, states) in values.pop("parts", {}).items():
            self.parts.setdefault(split, [])[first:] = states
        self.state = values or self.state
        self.size += size


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
        if interrupted is not None and interrupted.publishing and not temporary_path(tokens.first, self.owner).exists():
            interrupted = None  # its token files are complete
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

    def save(self, values: Mapping[str, Any]) -> None:
        """Append a line. What it says must be on disk already, but for the files' names. Raises `OSError`."""
        sync_folder(self.path.parent)  # names before the line that mentions them
        lines = [values] if self.kept or self._fingerprint is None else [asdict(self._fingerprint), values]
        text = "".join(json.dumps(checksummed(line)) + "\n" for line in lines).encode()
        with name_errors(self.path):
            while text:
                text = text[os.write(self._file.fileno(), text) :]
            os.fsync(self._file.fileno())
        self.kept = True
        self._next = monotonic() + INTERVAL


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
