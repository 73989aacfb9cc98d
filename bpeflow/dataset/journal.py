"""The journal of an encoding, from which an interrupted one resumes.

It is a file beside the temporary token files, ``.train.bin.ckpt.PID.part``, and is locked while its process lives. It
is empty at first, so a short encoding leaves nothing to resume. Then come lines of JSON, each with its checksum:

==============  ========================================================================================================
the first line  the `Fingerprint` of the encoding
checkpoints     one every `INTERVAL` seconds: the place in the corpus, statistics, and the lengths and checksums of the
                parts that have changed since the checkpoint before. The token files are on disk up to these lengths.
the last line   written before the token files get their names, as some of them may have theirs from then on
==============  ========================================================================================================

A token file only grows, so it is truncated to the last checkpoint to resume from there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from io import FileIO
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from bpeflow._util.atomic import (
    checksummed,
    hold_part,
    is_unlocked,
    make_folder,
    name_errors,
    remove_dead_parts,
    sync_folder,
    temporary_path,
    verified,
)
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset.token_set import TokenSet
from bpeflow.errors import AlreadyExistsError, FolderInUseError, ResumeError

#: Seconds between two checkpoints. More: more work is lost. Fewer: more waiting for the disk.
INTERVAL = 30.0

#: Larger than any process id. A number of its own for each process, even if those of two machines are the same.
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
    """The journal of this process.

    Attributes:
        owner: the number in the names of the temporary files.
        checkpoint: where the encoding resumes; None if it starts.
        kept: whether it can be resumed if it fails now.
    """

    def __init__(self, path: Path, owner: int, fingerprint: Fingerprint | None, checkpoint: Checkpoint | None) -> None:
        self.path, self.owner, self.checkpoint = path, owner, checkpoint
        self.kept = checkpoint is not None
        self._fingerprint = fingerprint
        self._file = FileIO(os.fspath(path), "r+" if checkpoint else "x+")
        self._next = monotonic() + INTERVAL

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
                text = text[self._file.write(text) :]
            os.fsync(self._file.fileno())
        self.kept = True
        self._next = monotonic() + INTERVAL

    def close(self) -> None:
        """Close the file, and so release its lock."""
        self._file.close()

    def claim(self) -> None:
        """Lock the journal of a dead process, and continue after its last whole line.

        Raises `FolderInUseError` if another process was faster.
        """
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(self.path) from None
        except OSError:  # some network file systems have no locks
            pass
        if self.checkpoint is not None:
            self._file.truncate(self.checkpoint.size)
        self._file.seek(0, os.SEEK_END)


@contextmanager
def open_journal(tokens: TokenSet, fingerprint: Fingerprint | None) -> Iterator[Journal]:
    """Open the journal of an interrupted encoding with `resume`, or else a new one. Those of dead processes go.

    It is removed after the block unless that fails and has a checkpoint. Without a fingerprint there are none. Raises
    `ResumeError` if the interrupted encoding has another fingerprint, and `FolderInUseError` if its process lives.
    """
    made: list[Path] = []
    with ExitStack() as opened:
        journal = _resumed(tokens, fingerprint) if tokens.options.resume and fingerprint is not None else None
        if journal is not None:
            opened.enter_context(closing(journal))
            journal.claim()
        remove_dead_parts(_path(tokens), lambda name: tokens.owner(name)[0] is not None)
        owners = count(os.getpid(), _MOST_PROCESSES)
        free = (owner for owner in owners if not temporary_path(_path(tokens), owner).exists())
        owner = next(free) if journal is None else journal.owner
        path = temporary_path(_path(tokens), owner)
        kept = False  # Ctrl-C may come while the file is being made
        try:
            if journal is None:
                made = make_folder(path.parent)
                with name_errors(tokens.first, path):
                    journal = opened.enter_context(closing(Journal(path, owner, fingerprint, None)))
                hold_part(journal._file)
            yield journal
        except BaseException as error:
            kept = journal is not None and journal.kept
            if kept:  # shown by Python 3.11 and later, and by the command line
                error.__notes__ = [f"{tokens.path}: to continue, repeat this with resume=True (--resume)"]  # type: ignore[attr-defined,unused-ignore]
            raise
        finally:
            if not kept:
                with suppress(OSError):  # the error of the block matters more
                    path.unlink(missing_ok=True)
                for folder in made:
                    with suppress(OSError):  # not empty
                        folder.rmdir()


def refuse_to_lose(tokens: TokenSet) -> None:
    """Raise `AlreadyExistsError` if a new encoding would remove an interrupted one that can be resumed."""
    for path, _, checkpoint in _interrupted(tokens):
        if is_unlocked(path):
            raise AlreadyExistsError(
                f"{tokens.path}: an encoding was interrupted after {checkpoint.state['tokens']:,} tokens; give "
                "resume=True (--resume) to continue it, or overwrite=True (--overwrite) to start over"
            )


def _resumed(tokens: TokenSet, fingerprint: Fingerprint) -> Journal | None:
    """Return the journal of the interrupted encoding that had come furthest; None if there is none."""
    found = sorted(_interrupted(tokens), key=lambda each: (is_unlocked(each[0]), each[2].state["tokens"]))
    if not found:
        return None
    path, owner, checkpoint = found[-1]
    if changes := fingerprint.differences(checkpoint.fingerprint):
        raise ResumeError(
            f"{tokens.path}: the interrupted encoding is of something else ({'; '.join(changes)}). Undo the change to "
            "resume it, or start over with overwrite=True (--overwrite) and without resume"
        )
    return Journal(path, owner, fingerprint, checkpoint)


def _interrupted(tokens: TokenSet) -> Iterator[tuple[Path, int, Checkpoint]]:
    """Yield the journals that have a checkpoint, each with its owner. One whose token files are complete has none."""
    journal = _path(tokens)
    for path in journal.parent.glob(".*.part"):
        match = re.fullmatch(rf"\.{re.escape(journal.name)}\.(\d+)\.part", path.name)
        if match is None or (checkpoint := Checkpoint.read(path)) is None:
            continue
        owner = int(match[1])
        if not checkpoint.publishing or temporary_path(tokens.first, owner).exists():
            yield path, owner, checkpoint


def _path(tokens: TokenSet) -> Path:
    first = Path(os.path.realpath(tokens.first))
    return first.with_name(f"{first.name}.ckpt")


def _in_use(path: Path) -> FolderInUseError:
    return FolderInUseError(f"{path}: another process is writing these token files: wait for it to end, or stop it")
