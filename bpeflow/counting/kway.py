"""The k-way sum: several sorted shards, added up into one sorted sequence of records.

In this order: the protocol `KWaySum`; `PythonKWaySum`, its reference implementation, which tests compare the other one
with; `NativeKWaySum`, which adds up tens of millions of records a second; and `kway_sum`, which picks one of the two.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from bpeflow._util.library import Signature, check_status, load_library
from bpeflow.counting.shards import (
    EVERYTHING,
    MARK_LENGTH,
    MAX_COUNT,
    RECORD,
    KeyRange,
    Mark,
    Shard,
    cannot_read,
    cannot_write,
    damaged,
    explain_write_error,
)
from bpeflow.errors import CountOverflowError, FormatError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts


#: ``"bytes"``: ascending; a pre-token may be in several shards, whose counts are added up. ``"count"``: canonical
#: order, count descending, then bytes ascending; no pre-token is in two shards.
Order = Literal["bytes", "count"]

#: Estimated bytes of a pre-token and its count as Python objects, on top of the record's own bytes.
_ITEM = 150


class KWaySum(Protocol):
    """The sum of several shards that are in the same order, as a sequence of records in that order.

    Records are read once. A sum is a context manager that frees its memory. Methods that read records raise
    `CountOverflowError` if a sum does not fit 64 bits and `ScratchError` if a file is unreadable or damaged. Methods
    that write raise `ScratchError` if writing fails.
    """

    def __enter__(self) -> KWaySum: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def ended(self) -> bool:
        """Whether all records have been read."""
        ...

    def write(self, path: Path, mark_every: int = 0) -> Shard:
        """Write all remaining records to a new file, and mark one about every `mark_every` bytes, or none if 0."""
        ...

    def gather(self, memory: int) -> int:
        """Read the next records of a sum by bytes, sort them into canonical order and return their size in bytes.

        Reads as many records as fit into `memory` bytes, but at least one. Replaces the records gathered before.
        """
        ...

    def gathered(self, path: Path | None = None) -> Shard:
        """Return the gathered records as a shard: in a new file if `path` is given and there are any."""
        ...

    def counts(self) -> PretokenCounts:
        """Return all records of a sum by count as a table."""
        ...


class PythonKWaySum:
    """The reference implementation, on the standard library's `heapq`."""

    def __init__(self, shards: Sequence[Shard], order: Order, key_range: KeyRange = EVERYTHING) -> None:
        self._partition = shards[0].partition if shards else 0
        records = _summed_by_bytes(shards) if order == "bytes" else _combined_by_count(shards)
        self._records: Iterator[tuple[bytes, int]] = (record for record in records if key_range.has(record[0]))
        self._gathered: list[tuple[bytes, int]] = []

    def __enter__(self) -> PythonKWaySum:
        return self

    def __exit__(self, *_: object) -> None:
        self._gathered = []

    @property
    def ended(self) -> bool:
        for record in self._records:
            self._records = chain([record], self._records)
            return False
        return True

    def write(self, path: Path, mark_every: int = 0) -> Shard:
        shard = Shard.pack(self._partition, self._records, path)
        return replace(shard, marks=tuple(_marks(shard, mark_every))) if mark_every else shard

    def gather(self, memory: int) -> int:
        self._gathered = []
        size = 0
        for record in self._records:
            record_size = RECORD.size + len(record[0])
            if size and size + record_size + _ITEM * (len(self._gathered) + 1) > memory:
                self._records = chain([record], self._records)
                break
            self._gathered.append(record)
            size += record_size
        self._gathered.sort(key=itemgetter(1), reverse=True)  # stable: equal counts stay in ascending order of bytes
        return size

    def gathered(self, path: Path | None = None) -> Shard:
        return Shard.pack(self._partition, self._gathered, path if self._gathered else None)

    def counts(self) -> PretokenCounts:
        from bpeflow.counting.counts import PretokenCounts

        return PretokenCounts.from_items(self._records)


def _marks(shard: Shard, every: int) -> Iterator[Mark]:
    offset, wanted = 0, every
    for number, (token, _) in enumerate(shard.items()):
        if offset >= wanted and len(token) <= MARK_LENGTH:
            yield Mark(token, offset, number)
            wanted = offset + every
        offset += RECORD.size + len(token)


def _summed_by_bytes(shards: Sequence[Shard]) -> Iterator[tuple[bytes, int]]:
    last, total = b"", 0
    for token, count in heapq.merge(*(_checked(shard, itemgetter(0)) for shard in shards), key=itemgetter(0)):
        if token != last and last:
            yield last, total
            total = 0
        last, total = token, total + count
        if total > MAX_COUNT:
            raise CountOverflowError(f"the count of pre-token {token!r} is {total}, which does not fit 64 bits")
    if last:
        yield last, total


def _combined_by_count(shards: Sequence[Shard]) -> Iterator[tuple[bytes, int]]:
    return heapq.merge(*(_checked(shard, _canonical) for shard in shards), key=_canonical)


def _canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def _checked(shard: Shard, key: Callable[[tuple[bytes, int]], Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the records of a shard. Raises the shard's error if they are out of order."""
    last = None
    for item in shard.items():
        if last is not None and key(item) < key(last):
            raise shard.damaged()
        yield item
        last = item


#: Records read per native call, which takes about 50 ms. Python handles Ctrl-C between two calls: with more records it
#: is handled later, with fewer the overhead of the calls adds up.
_STEP = 1_000_000

#: The values of `enum bpeflow_shard_order` in bpeflow.h.
_ORDERS: dict[Order, int] = {"bytes": 0, "count": 1}

#: The index that `bpeflow_kway_failed` returns for the output file.
_OUTPUT_FILE = 2**64 - 1


class _Shard(ctypes.Structure):
    """`bpeflow_shard` in bpeflow.h."""

    _fields_ = (
        ("data", c_void_p),
        ("path", c_char_p),
        ("tokens", c_uint64),
        ("size", c_uint64),
        ("offset", c_uint64),
        ("file_size", c_uint64),
    )


class _Range(ctypes.Structure):
    """`bpeflow_range` in bpeflow.h."""

    _fields_ = (("low", c_char_p), ("high", c_char_p), ("low_length", c_uint64), ("high_length", c_uint64))


class _Mark(ctypes.Structure):
    """`bpeflow_mark` in bpeflow.h."""

    _fields_ = (("offset", c_uint64), ("token", c_uint64))


_COUNT = POINTER(c_uint64)

_SIGNATURES: dict[str, Signature] = {
    "bpeflow_kway_new": (
        c_int,
        [POINTER(_Shard), c_uint64, c_uint32, c_uint64, POINTER(_Range), POINTER(c_void_p)],
        check_status,
    ),
    "bpeflow_kway_failed": (c_uint64, [c_void_p], None),
    "bpeflow_kway_ended": (c_int, [c_void_p, POINTER(c_uint32)], check_status),
    "bpeflow_kway_read": (
        c_int,
        [c_void_p, c_uint64, c_uint64, c_int64, c_void_p, c_void_p, c_void_p, _COUNT, _COUNT],
        check_status,
    ),
    "bpeflow_kway_write": (c_int, [c_void_p, c_char_p, c_uint64, _COUNT, _COUNT, _COUNT], check_status),
    "bpeflow_kway_marks": (c_int, [c_void_p, POINTER(_Mark)], check_status),
    "bpeflow_kway_gather": (c_int, [c_void_p, c_uint64, _COUNT, _COUNT], check_status),
    "bpeflow_kway_save": (c_int, [c_void_p, c_void_p, c_char_p], check_status),
    "bpeflow_kway_free": (None, [c_void_p], None),
}


@cache
def _library() -> ctypes.CDLL:
    return load_library("count", _SIGNATURES)


class NativeKWaySum:
    """The sum in native memory. Its handle is freed at the end of the `with` block or together with the object."""

    def __init__(
        self, shards: Sequence[Shard], order: Order, buffer_size: int, key_range: KeyRange = EVERYTHING
    ) -> None:
        """Borrow the memory of the shards. Raises `NativeUnavailableError` if there is no native library."""
        self._library = _library()
        self._shards = [shard for shard in shards if len(shard)]
        self._partition = shards[0].partition if shards else 0
        self._gathered = c_uint64(), c_uint64()
        self._handle = c_void_p()
        natives = (_Shard * len(self._shards))(*map(_as_native, self._shards))
        limits = None if key_range == EVERYTHING else byref(_as_native_range(key_range))
        self._library.bpeflow_kway_new(natives, len(natives), _ORDERS[order], buffer_size, limits, byref(self._handle))
        handle = c_void_p(self._handle.value)
        self._free = weakref.finalize(self, self._library.bpeflow_kway_free, handle)

    def __enter__(self) -> NativeKWaySum:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle = c_void_p()  # every native function refuses NULL
        self._free()

    @property
    def ended(self) -> bool:
        ended = c_uint32()
        with self._file_errors():
            self._library.bpeflow_kway_ended(self._handle, byref(ended))
        return bool(ended.value)

    def write(self, path: Path, mark_every: int = 0) -> Shard:
        tokens, size, marks = c_uint64(), c_uint64(), c_uint64()
        with self._file_errors(path):
            self._library.bpeflow_kway_write(
                self._handle, os.fsencode(path), mark_every, byref(tokens), byref(size), byref(marks)
            )
        shard = Shard.in_file(self._partition, tokens.value, size.value, path)
        return replace(shard, marks=self._marks(path, marks.value)) if marks.value else shard

    def _marks(self, path: Path, count: int) -> tuple[Mark, ...]:
        """Return the marks of the shard just written, whose keys are read from its file."""
        marks = (_Mark * count)()
        self._library.bpeflow_kway_marks(self._handle, marks)
        try:
            with path.open("rb") as file:
                return tuple(Mark(_read_key(file, mark.offset), mark.offset, mark.token) for mark in marks)
        except OSError as error:
            raise cannot_read(path, error) from error

    def gather(self, memory: int) -> int:
        tokens, size = self._gathered
        with self._file_errors():
            self._library.bpeflow_kway_gather(self._handle, memory, byref(tokens), byref(size))
        return size.value

    def gathered(self, path: Path | None = None) -> Shard:
        tokens, size = (number.value for number in self._gathered)
        if not tokens:
            return Shard.in_memory(self._partition, 0, b"")
        if path is None:
            data = bytearray(size)
            self._library.bpeflow_kway_save(self._handle, address(data), None)
            return Shard.in_memory(self._partition, tokens, data)
        with explain_write_error(path):
            self._library.bpeflow_kway_save(self._handle, None, os.fsencode(path))
        return Shard.in_file(self._partition, tokens, size, path)

    def counts(self) -> PretokenCounts:
        import numpy as np  # late, as workers do not need it and start in half the time without

        from bpeflow.counting.counts import PretokenCounts

        for shard in self._shards:
            if shard.token_bytes < len(shard):  # impossible, and `tokens` may ask for more than all memory
                raise shard.damaged()
        wanted = sum(len(shard) for shard in self._shards)
        data = np.empty(sum(shard.token_bytes for shard in self._shards), dtype=np.uint8)
        offsets = np.zeros(wanted + 1, dtype=np.int64)
        counts = np.empty(wanted, dtype=np.int64)
        done, end = 0, 0
        tokens, size = c_uint64(), c_uint64()
        with self._file_errors():
            while done < wanted:
                self._library.bpeflow_kway_read(
                    self._handle,
                    min(_STEP, wanted - done),
                    len(data) - end,
                    end,
                    data.ctypes.data + end,
                    offsets.ctypes.data + (done + 1) * offsets.itemsize,
                    counts.ctypes.data + done * counts.itemsize,
                    byref(tokens),
                    byref(size),
                )
                if not tokens.value:
                    raise FormatError("shards with other numbers of records or bytes than they state")
                done, end = done + tokens.value, end + size.value
        return PretokenCounts(data, offsets, counts)

    @contextmanager
    def _file_errors(self, output: Path | None = None) -> Iterator[None]:
        """Turn errors in the block into errors that name the file which caused them."""
        try:
            yield
        except (OSError, FormatError) as error:
            index = self._library.bpeflow_kway_failed(self._handle)
            path = output if index == _OUTPUT_FILE else self._shards[index].path
            if path is None:
                raise
            if isinstance(error, FormatError):
                raise damaged(path) from None
            raise cannot_write(path, error) if index == _OUTPUT_FILE else cannot_read(path, error) from error


def _as_native(shard: Shard) -> _Shard:
    if shard.data is not None:
        return _Shard(address(shard.data), None, shard.tokens, shard.size)
    file_size = shard.size if shard.file_size is None else shard.file_size
    return _Shard(None, os.fsencode(shard.path or ""), shard.tokens, shard.size, shard.offset, file_size)


def _as_native_range(key_range: KeyRange) -> _Range:
    low, high = key_range
    return _Range(low, high, len(low or b""), len(high or b""))


def _read_key(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    length, _ = RECORD.unpack(file.read(RECORD.size))
    return file.read(length)


def address(data: bytes | bytearray) -> int:
    """Return the address of the first byte, which is valid while the caller keeps `data` alive."""
    if isinstance(data, bytearray):
        return ctypes.addressof((c_char * len(data)).from_buffer(data))
    return ctypes.cast(c_char_p(data), c_void_p).value or 0


def kway_sum(shards: Sequence[Shard], order: Order, buffer_size: int, key_range: KeyRange = EVERYTHING) -> KWaySum:
    """Return the sum of shards that are in `order`: the native one if available, else the Python one.

    The native one reads `buffer_size` bytes of a file at a time. With a range, for which the order must be by bytes,
    all other pre-tokens are left out.
    """
    try:
        return NativeKWaySum(shards, order, buffer_size, key_range)
    except NativeUnavailableError:
        return PythonKWaySum(shards, order, key_range)
