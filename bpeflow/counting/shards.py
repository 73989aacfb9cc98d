"""`Shard`: sorted pre-token counts by partition, in memory or in a file; and the scratch folder for the files.

All shards have the same partitions, whether a counter sends or spills them, or a segment or a task makes them. So
each partition is summed alone, by whichever thread, process or task is free. Shards travel from counters to mergers and
from mergers to the reducer. A process that runs out of its share of memory spills: it writes its shards to the scratch
folder.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import c_uint64
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from struct import Struct
from typing import Any, BinaryIO

from bpeflow._util.atomic import sync_folder
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from bpeflow.flow import reduce_out_of_band

#: The number of partitions of every shard. With more of them, more tasks can sum at the same time, but the pieces of
#: small shards are smaller. It is part of the format of segments.
PARTITIONS = 32

#: The largest count: counts are signed 64-bit integers.
MAX_COUNT = 2**63 - 1

#: The header of a record, as bpeflow.h defines it: the length of the pre-token and its count. The bytes follow.
RECORD = Struct("=Iq")

#: The factors of the hash in ext/common/hash.hpp.
_STEP, _END = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93

#: The remedy if counts cannot be written to the scratch folder.
_MORE_ROOM = "Set scratch_dir to a folder with more room, or raise memory_limit so that less is written"

_READ_SIZE = 1 << 20
_SCRATCH_NAME = re.compile(r"(\.scratch|bpeflow)-[0-9a-f]{16}")


def hash_of(token: bytes) -> int:
    """Return the hash of a pre-token, 64 bits, as ext/common/hash.hpp defines it."""
    if len(token) > 16:
        words = [*(token[place : place + 8] for place in range(0, len(token) - 8, 8)), token[-8:]]
    else:
        words = [token[:8], token[8:]]
    hashed = len(token)
    for word in words:
        hashed = (hashed ^ int.from_bytes(word, "little")) * _STEP & 0xFFFFFFFFFFFFFFFF
        hashed ^= hashed >> 32
    hashed = hashed * _END & 0xFFFFFFFFFFFFFFFF
    return hashed ^ hashed >> 32


def partition_of(token: bytes) -> int:
    """Return the partition of a pre-token, which its hash decides."""
    return hash_of(token) * PARTITIONS >> 64


@dataclass(frozen=True)
class Spilled:
    """The amount of data written to the scratch folder. Amounts can be added.

    Attributes:
        shards: number of files, including intermediate sums.
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

    def clear(self) -> None:
        """Remove the folder. It is created again on the next use."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_path(self, writer: str) -> Path:
        """Create the folder if needed and return a new path in it. Raises `ScratchError`."""
        with explain_write_error(self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
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
        scratch.clear()


def remove_left_behind(folder: object) -> None:
    """Remove the scratch folder of a run that was killed, durably, as its path is not recorded any longer.

    Does nothing unless `folder` has the name of a scratch folder.
    """
    if isinstance(folder, str) and _SCRATCH_NAME.fullmatch(Path(folder).name) and not Path(folder).is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
        sync_folder(Path(folder).parent)


@contextmanager
def explain_write_error(path: Path, remedy: str = _MORE_ROOM) -> Iterator[None]:
    """Turn an `OSError` in the block, which writes to `path`, into a `ScratchError` with the remedy."""
    try:
        yield
    except ScratchError:  # from reading what is written
        raise
    except OSError as error:
        raise ScratchError(f"cannot write counts to {path}: {error.strerror}. {remedy}") from error


@dataclass(frozen=True)
class Shard:
    """Distinct pre-tokens of consecutive partitions with their counts: records, partition by partition.

    The records of a partition are in ascending order of bytes. All records are either in memory, where pickling them is
    cheap whatever their number, or in a file, of which only the name is pickled.

    Attributes:
        partitions: the partitions.
        tokens: number of records in each.
        sizes: size of the records of each in bytes.
        data: the records; None if they are in a file.
        path: the file, or None.
        offset: position of the first record in the file.
        statistics: statistics of the documents counted. One shard of a counter carries them for all that it sends, so
            that they add up.
        spilled: amount of data spilled to make this shard, including its own file, likewise.
        merger: index of the merger that it is sent to.
    """

    partitions: range
    tokens: tuple[int, ...]
    sizes: tuple[int, ...]
    data: bytearray | memoryview | None = None
    path: Path | None = None
    offset: int = 0
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    spilled: Spilled = field(default=Spilled())
    merger: int = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return sum(self.tokens)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return reduce_out_of_band(self)

    @property
    def size(self) -> int:
        """Size of all records in bytes."""
        return sum(self.sizes)

    @classmethod
    def in_file(cls, partitions: range, tokens: Iterable[int], sizes: Iterable[int], path: Path) -> Shard:
        """Return a shard that is all of a file."""
        shard = cls(partitions, tuple(tokens), tuple(sizes), path=path)
        return replace(shard, spilled=Spilled(1, shard.size))

    @classmethod
    def written(
        cls, write: Callable[[int | None, bytes | None, Any, Any], Any], partitions: range, size: int, path: Path | None
    ) -> Shard:
        """Return a shard that native code writes to memory, or to a new file at `path`.

        `write` gets the address of `size` bytes or the path, and arrays for `tokens` and `sizes`. Raises `ScratchError`
        if the file cannot be written.
        """
        data = bytearray(0 if path else size)
        tokens, sizes = ((c_uint64 * len(partitions))() for _ in range(2))
        with explain_write_error(path or Path()):
            write(None if path else address(data), os.fsencode(path) if path else None, tokens, sizes)
        if path is not None:
            return cls.in_file(partitions, tokens, sizes, path)
        del data[sum(sizes) :]
        return cls(partitions, tuple(tokens), tuple(sizes), data)

    @classmethod
    def pack(
        cls, items: Iterable[tuple[bytes, int]], path: Path | None = None, partitions: range = range(PARTITIONS)
    ) -> Shard:
        """Pack `(pre-token, count)` pairs, in any order, in memory or, if there are any, to a new file at `path`.

        If there is only one of the `partitions`, all pairs are taken to belong to it.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
            ScratchError: the file cannot be written.
        """
        tokens, sizes = [0] * len(partitions), [0] * len(partitions)
        packed = bytearray()
        place = partition_of if len(partitions) > 1 else lambda _: 0
        for partition, token, count in sorted((place(token), token, count) for token, count in items):
            if count > MAX_COUNT:
                raise CountOverflowError(f"the count of pre-token {token!r} is {count}, which does not fit 64 bits")
            packed += RECORD.pack(len(token), count) + token
            tokens[partition] += 1
            sizes[partition] += RECORD.size + len(token)
        if path is None or not packed:
            return cls(partitions, tuple(tokens), tuple(sizes), packed)
        with explain_write_error(path), path.open("xb") as file:
            file.write(packed)
        return cls.in_file(partitions, tokens, sizes, path)

    def select(self, partitions: range, merger: int = 0) -> Shard:
        """Return some of the partitions. The first of them carries the statistics and what was spilled."""
        first, last = (place - self.partitions.start for place in (partitions.start, partitions.stop))
        begin, end = sum(self.sizes[:first]), sum(self.sizes[:last])
        selected = replace(
            self,
            partitions=partitions,
            tokens=self.tokens[first:last],
            sizes=self.sizes[first:last],
            data=None if self.data is None else memoryview(self.data)[begin:end],
            offset=0 if self.path is None else self.offset + begin,
            merger=merger,
        )
        return selected if first == 0 else replace(selected, statistics=DocumentStatistics(), spilled=Spilled())

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """Yield the records. Raises `ScratchError` for errors in the block: `EOFError` means that they are damaged."""
        try:
            with BytesIO(self.data or b"") if self.path is None else self.path.open("rb") as file:
                file.seek(self.offset)
                yield file
        except OSError as error:
            raise ScratchError(f"cannot read back the counts in {self.path}: {error.strerror}") from error
        except EOFError:
            raise self.damaged() from None

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield `(pre-token, count)` in order. Raises `ScratchError` if the file is unreadable or damaged."""
        with self._open() as file:
            for tokens, size in zip(self.tokens, self.sizes, strict=True):
                yield from _read_records(file, tokens, size)
            if self.path is None and file.read(1):
                raise EOFError

    def blocks(self) -> Iterator[bytes]:
        """Yield all records, packed, in blocks. Raises `ScratchError` if the file is unreadable or damaged."""
        left = self.size
        with self._open() as file:
            while left:
                if not (data := file.read(min(left, _READ_SIZE))):
                    raise EOFError
                left -= len(data)
                yield data

    def damaged(self) -> ScratchError | FormatError:
        """Return the error for records that are not a valid shard. In memory that can only be a bug of ours."""
        if self.path is None:
            return FormatError("an invalid shard (please report this)")
        return ScratchError(
            f"the counts in {self.path} have been damaged or truncated since they were written: check whether the disk "
            "is faulty, or whether another program writes to the scratch folder"
        )


def address(data: bytearray | memoryview) -> int:
    """Return the address of the first byte, which is valid while the caller keeps `data` alive."""
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))


def owned_partitions(mergers: int) -> list[range]:
    """Return the partitions of each merger, about as many for each."""
    bounds = [PARTITIONS * merger // mergers for merger in range(mergers + 1)]
    return list(map(range, bounds, bounds[1:]))


def divide_shards(shards: Iterable[Shard], mergers: int) -> Iterator[Shard]:
    """Yield the partitions that each merger owns of each shard."""
    for shard in shards:
        for merger, owned in enumerate(owned_partitions(mergers)):
            yield shard.select(owned, merger)


def _read_records(file: BinaryIO, tokens: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records of a partition. Raises `EOFError` unless `tokens` valid, ordered records have `size` bytes."""
    last = b""
    for _ in range(tokens):
        header = file.read(RECORD.size)
        if len(header) != RECORD.size:
            raise EOFError
        length, count = RECORD.unpack(header)
        size -= RECORD.size + length
        token = file.read(length) if size >= 0 else b""
        if len(token) != length or length == 0 or count < 1 or token < last:
            raise EOFError
        yield token, count
        last = token
    if size != 0:
        raise EOFError
