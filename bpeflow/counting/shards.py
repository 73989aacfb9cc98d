"""`Shard`: sorted pre-token counts, in memory or in a file; and the scratch folder for the files.

Shards travel from counters to mergers and from mergers to the reducer. A process that runs out of its share of memory
spills: it writes its shards to the scratch folder.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from io import BytesIO
from pathlib import Path
from pickle import PickleBuffer
from secrets import token_hex
from struct import Struct
from typing import Any, BinaryIO, Literal, NamedTuple

from bpeflow._util.atomic import sync_folder
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.errors import CountOverflowError, FormatError, ScratchError

#: ``"bytes"``: ascending; a pre-token may be in several shards, whose counts are added up. ``"count"``: canonical
#: order, count descending, then bytes ascending; no pre-token is in two shards.
Order = Literal["bytes", "count"]

#: The largest count: counts are signed 64-bit integers.
MAX_COUNT = 2**63 - 1

#: The header of a record, as bpeflow.h defines it: the length of the pre-token and its count. The bytes follow.
RECORD = Struct("=Iq")

#: The longest pre-token at a `Mark`, as bpeflow.h defines it.
MARK_LENGTH = 256

_SCRATCH_NAME = re.compile(r"(\.scratch|bpeflow)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Spilled:
    """The amount of data written to the scratch folder. Amounts can be added.

    Attributes:
        shards: number of files, including those of intermediate sums.
        bytes: total size of these files.
    """

    shards: int = 0
    bytes: int = 0

    def __add__(self, other: Spilled) -> Spilled:
        return Spilled(self.shards + other.shards, self.bytes + other.bytes)


@dataclass(frozen=True)
class Scratch:
    """A folder for spilled shards, created on first use. Picklable, as workers write to it.

    Attributes:
        folder: path of the folder, which belongs to one training run alone.
    """

    folder: Path

    def new_path(self, writer: str) -> Path:
        """Create the folder if needed and return a new path in it. Raises `ScratchError`."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        return self.folder / f"{writer}-{token_hex(8)}.shard"


def new_scratch(parent: Path | None) -> Scratch:
    """Choose a scratch folder in `parent`, or in the system's temporary folder. The first spill creates it."""
    name = f"bpeflow-{token_hex(8)}" if parent is None else f".scratch-{token_hex(8)}"
    return Scratch((parent or Path(tempfile.gettempdir())).absolute() / name)


@contextmanager
def removed_at_end(scratch: Scratch) -> Iterator[None]:
    """Remove the scratch folder at the end of the block.

    The main process leaves the block after all workers have ended, so files of workers that died are removed too. The
    folder survives only if the main process itself is killed. The next run in the same run folder then removes it.
    """
    try:
        yield
    finally:
        shutil.rmtree(scratch.folder, ignore_errors=True)


def remove_left_behind(folder: object) -> None:
    """Remove the scratch folder of a run that was killed, durably, as its path is not recorded any longer.

    Does nothing unless `folder` has the name of a scratch folder.
    """
    if isinstance(folder, str) and _SCRATCH_NAME.fullmatch(Path(folder).name) and not Path(folder).is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(Path(folder).parent)


def cannot_write(path: Path, error: OSError) -> ScratchError:
    """Return the error for counts that cannot be written, with the remedy."""
    return ScratchError(
        f"cannot write counts to {path}: {error.strerror}. Set scratch_dir to a folder with more room, or raise "
        "memory_limit so that less is written"
    )


def cannot_read(path: Path, error: OSError) -> ScratchError:
    """Return the error for counts that cannot be read back."""
    return ScratchError(f"cannot read back the counts in {path}: {error.strerror}")


def damaged(path: Path) -> ScratchError:
    """Return the error for a file that has changed since it was written."""
    return ScratchError(
        f"the counts in {path} have been damaged or truncated since they were written: check whether the disk is "
        "faulty, or whether another program writes to the scratch folder"
    )


@contextmanager
def explain_write_error(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block, which writes to `path`, into a `ScratchError`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


class Mark(NamedTuple):
    """A position in a shard by bytes at which reading can begin.

    Attributes:
        key: the pre-token of the record there, of at most `MARK_LENGTH` bytes.
        offset: offset of the record in bytes.
        token: index of the record.
    """

    key: bytes
    offset: int
    token: int


class KeyRange(NamedTuple):
    """The pre-tokens from `low` on and below `high`, in ascending order of bytes; None is no limit."""

    low: bytes | None = None
    high: bytes | None = None

    def has(self, token: bytes) -> bool:
        """Return whether a pre-token is in the range."""
        return (self.low is None or token >= self.low) and (self.high is None or token < self.high)


#: All pre-tokens.
EVERYTHING = KeyRange()


@dataclass(frozen=True)
class Shard:
    """Distinct pre-tokens of one partition with their counts, as a sorted sequence of records.

    The records are either in memory, where pickling them is cheap whatever their number, or in a file, of which only
    the name is pickled.

    Attributes:
        partition: index of the merger that owns it.
        tokens: number of records.
        size: size of the records in bytes.
        data: the records; None if they are in a file.
        path: the file, or None.
        statistics: statistics of the documents counted. One shard of a counter carries them for all its partitions, so
            that they add up.
        spilled: amount of data spilled to make this shard, including its own file.
        durable: whether the file is kept after the shard has been summed, as that of a segment is.
        offset: position of the first record in the file.
        file_size: size of the file, if it has other records too.
        marks: positions in it, in ascending order.
    """

    partition: int
    tokens: int
    size: int
    data: bytes | bytearray | None = None
    path: Path | None = None
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    spilled: Spilled = field(default=Spilled())
    durable: bool = False
    offset: int = 0
    file_size: int | None = None
    marks: tuple[Mark, ...] = ()

    def __len__(self) -> int:
        return self.tokens

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the records out of band, so that they are not copied on their way to another process."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if protocol >= 5 and isinstance(self.data, bytearray):
            values["data"] = PickleBuffer(self.data)
        return Shard, tuple(values.values())

    @property
    def token_bytes(self) -> int:
        """Total length of the pre-tokens in bytes."""
        return self.size - self.tokens * RECORD.size

    @classmethod
    def in_memory(cls, partition: int, tokens: int, data: bytes | bytearray) -> Shard:
        """Return a shard of the records in `data`."""
        return cls(partition, tokens, len(data), data)

    @classmethod
    def in_file(cls, partition: int, tokens: int, size: int, path: Path) -> Shard:
        """Return a shard of the records in a file."""
        return cls(partition, tokens, size, path=path, spilled=Spilled(1, size))

    @classmethod
    def pack(cls, partition: int, items: Iterable[tuple[bytes, int]], path: Path | None = None) -> Shard:
        """Pack sorted `(pre-token, count)` pairs, in memory or to a new file at `path`.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
            ScratchError: the file cannot be written.
        """
        try:
            with ExitStack() as stack:
                file = BytesIO() if path is None else stack.enter_context(path.open("xb"))
                tokens = _write_records(file, items)
                size = file.tell()
        except OSError as error:
            assert path is not None, "writing to memory raises no OSError"  # noqa: S101 -- for the type checker
            raise cannot_write(path, error) from error
        if path is not None:
            return cls.in_file(partition, tokens, size, path)
        assert isinstance(file, BytesIO)  # noqa: S101 -- for the type checker
        return cls.in_memory(partition, tokens, file.getvalue())

    def part(self, begin: Mark, end: Mark) -> Shard:
        """Return the records of a durable file from one position to another, without statistics and marks."""
        return Shard(
            self.partition,
            end.token - begin.token,
            end.offset - begin.offset,
            path=self.path,
            durable=True,
            offset=begin.offset,
            file_size=self.size,
        )

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield `(pre-token, count)` in order. Raises `ScratchError` if the file is unreadable or damaged."""
        try:
            with BytesIO(self.data or b"") if self.path is None else self.path.open("rb") as file:
                rest = 0 if self.file_size is None else self.file_size - self.offset - self.size
                file.seek(self.offset)
                yield from _read_records(file, self.tokens, self.size, rest)
        except OSError as error:
            raise cannot_read(self.path or Path(), error) from error
        except EOFError:
            raise self.damaged() from None

    def damaged(self) -> ScratchError | FormatError:
        """Return the error for records that are not a valid shard. In memory that can only be a bug of ours."""
        return damaged(self.path) if self.path is not None else FormatError("an invalid shard (please report this)")

    def remove(self) -> None:
        """Remove the shard's file, if there is one and it is not durable."""
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


def _read_records(file: BinaryIO, tokens: int, size: int, rest: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records. Raises `EOFError` unless `tokens` valid records have `size` bytes, before the last `rest`."""
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
    end = file.tell()
    if size != 0 or file.seek(0, os.SEEK_END) != end + rest:
        raise EOFError
