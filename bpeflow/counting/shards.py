"""`Shard`: the counts of one partition, as they travel from one process to the next."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from struct import Struct
from typing import BinaryIO

from bpeflow._util.atomic import sync_folder
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.errors import CountOverflowError, FormatError, ScratchError

#: The largest count: counts are signed 64-bit integers.
MAX_COUNT = 2**63 - 1

#: What stands before the bytes of a pre-token: their number and the count, as bpeflow.h states it.
RECORD = Struct("=Iq")

_SCRATCH_NAME = re.compile(r"(\.scratch|bpeflow)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Spilled:
    """What has been written to the scratch folder; adds up.

    Attributes:
        shards: files, those of intermediate merges included.
        bytes: bytes in them.
    """

    shards: int = 0
    bytes: int = 0

    def __add__(self, other: Spilled) -> Spilled:
        return Spilled(self.shards + other.shards, self.bytes + other.bytes)


@dataclass(frozen=True)
class Scratch:
    """A folder that is not there until something is spilled: picklable, for the workers that write to it.

    Attributes:
        folder: its path, which nobody else uses.
    """

    folder: Path

    def new_path(self, writer: str) -> Path:
        """Return the path of a file that is not there yet, and see that its folder is. Raises `ScratchError`."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        return self.folder / f"{writer}-{token_hex(8)}.shard"


def new_scratch(parent: Path | None) -> Scratch:
    """Name a scratch folder in `parent`, or in the system's temporary folder. The first worker that spills makes it."""
    name = f"bpeflow-{token_hex(8)}" if parent is None else f".scratch-{token_hex(8)}"
    return Scratch((parent or Path(tempfile.gettempdir())).absolute() / name)


@contextmanager
def removed_at_end(scratch: Scratch) -> Iterator[None]:
    """Remove the scratch folder when the block ends.

    The main process enters this, and leaves it when all workers have ended; so it also removes what a worker that died
    has left. Only if it is killed itself the folder stays, until the next run in the same run folder removes it.
    """
    try:
        yield
    finally:
        shutil.rmtree(scratch.folder, ignore_errors=True)


def remove_left_behind(folder: object) -> None:
    """Remove the scratch folder of a run that was killed, for good: nobody will remember it.

    Nothing that has another name than scratch folders have.
    """
    if isinstance(folder, str) and _SCRATCH_NAME.fullmatch(Path(folder).name) and not Path(folder).is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(Path(folder).parent)


def cannot_write(path: Path, error: OSError) -> ScratchError:
    """Say that, why, and what to do."""
    return ScratchError(
        f"cannot write counts to {path}: {error.strerror}. Name a scratch_dir with more room, or raise memory_limit, "
        "so that less has to be written"
    )


def cannot_read(path: Path, error: OSError) -> ScratchError:
    """Say that and why."""
    return ScratchError(f"cannot read the counts in {path} again: {error.strerror}")


def damaged(path: Path) -> ScratchError:
    """Say that something else has been at work."""
    return ScratchError(
        f"the counts in {path} are damaged or cut short since they were written: see whether the disk works, and "
        "whether something else writes to the scratch folder"
    )


@dataclass(frozen=True)
class Shard:
    """Distinct pre-tokens of one partition with their counts, in order, one record after another.

    The records are in memory, cheap to pickle whatever their number; or in a file, of which only the name travels.

    Attributes:
        partition: which merger owns it.
        tokens: how many records there are.
        size: how many bytes they have.
        data: the records; None if they are in a file.
        path: the file, or None.
        statistics: of the documents that were counted, in one partition's run only, so that they add up.
        spilled: what was written to files on the way to this run, its own included.
        durable: whether the file is there to stay, as that of a segment is, when the run has been merged with others.
    """

    partition: int
    tokens: int
    size: int
    data: bytes | bytearray | None = None
    path: Path | None = None
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    spilled: Spilled = field(default=Spilled())
    durable: bool = False

    def __len__(self) -> int:
        return self.tokens

    @property
    def token_bytes(self) -> int:
        """Bytes of the pre-tokens."""
        return self.size - self.tokens * RECORD.size

    @classmethod
    def in_memory(cls, partition: int, tokens: int, data: bytes | bytearray) -> Shard:
        """A run whose records are at hand."""
        return cls(partition, tokens, len(data), data)

    @classmethod
    def in_file(cls, partition: int, tokens: int, size: int, path: Path) -> Shard:
        """A run whose records have been written to a file."""
        return cls(partition, tokens, size, path=path, spilled=Spilled(1, size))

    @classmethod
    def pack(cls, partition: int, items: Iterable[tuple[bytes, int]], path: Path | None = None) -> Shard:
        """Pack ``(pre-token, count)`` pairs, which are in order; to a new file if there is a `path`.

        Raises `CountOverflowError` for a count that does not fit 64 bits and `ScratchError` for a file that cannot be
        written.
        """
        try:
            with ExitStack() as stack:
                file = BytesIO() if path is None else stack.enter_context(path.open("xb"))
                tokens = _write_records(file, items)
                size = file.tell()
        except OSError as error:
            assert path is not None, "memory is no file"
            raise cannot_write(path, error) from error
        if path is not None:
            return cls.in_file(partition, tokens, size, path)
        assert isinstance(file, BytesIO)
        return cls.in_memory(partition, tokens, file.getvalue())

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield ``(pre-token, count)`` in order. Raises `ScratchError` for a file that has been damaged."""
        try:
            with BytesIO(self.data or b"") if self.path is None else self.path.open("rb") as file:
                yield from _read_records(file, self.tokens, self.size)
        except OSError as error:
            raise cannot_read(self.path or Path(), error) from error
        except EOFError:
            raise self.damaged() from None

    def damaged(self) -> ScratchError | FormatError:
        """The error for records that are no run: of what memory holds we alone are to blame."""
        return damaged(self.path) if self.path is not None else FormatError("no run of counts (please report this)")

    def remove(self) -> None:
        """Remove the file, if the run is in one that is still there and is not to stay."""
        if self.path is not None and not self.durable:
            self.path.unlink(missing_ok=True)


def _write_records(file: BinaryIO, items: Iterable[tuple[bytes, int]]) -> int:
    tokens = 0
    for token, count in items:
        if count > MAX_COUNT:
            raise CountOverflowError(f"the count of pre-token {token!r} is {count}, which does not fit 64 bits")
        file.write(RECORD.pack(len(token), count) + token)
        tokens += 1
    return tokens


def _read_records(file: BinaryIO, tokens: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records, which must be all that there is. Raises `EOFError` if they are not."""
    for _ in range(tokens):
        header = file.read(RECORD.size)
        if len(header) != RECORD.size:
            raise EOFError
        length, count = RECORD.unpack(header)
        size -= RECORD.size + length
        token = file.read(length) if size >= 0 else b""
        if len(token) != length or length == 0 or count < 1:
            raise EOFError
        yield token, count
    if size != 0 or file.read(1):
        raise EOFError
