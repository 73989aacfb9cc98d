"""Merging runs of counts in native code: tens of millions of records a second."""

from __future__ import annotations

import ctypes
import heapq
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bpeflow._util.library import Signature, check_status, load_library
from bpeflow.counting.shards import MAX_COUNT, RECORD, Shard, cannot_read, cannot_write, damaged
from bpeflow.errors import CountOverflowError, FormatError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts


#: By bytes, ascending: a pre-token may be in several runs, whose counts are added up. By count: the canonical order,
#: count descending, then bytes ascending; no pre-token is in two runs.
Order = Literal["bytes", "count"]

#: What a pre-token and its count take as Python's objects, besides the bytes: about.
_ITEM = 150


class KWaySum(Protocol):
    """The records of several runs, which are in the same order, as one sequence in that order; it is read once.

    A context manager that frees its memory. What reads raises `CountOverflowError` for a sum that does not fit 64 bits
    and `ScratchError` for a file that cannot be read or is damaged; what writes, for one that cannot be written.
    """

    def __enter__(self) -> KWaySum: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def ended(self) -> bool:
        """Whether all records have been given."""
        ...

    def write(self, path: Path) -> Shard:
        """Write all records that are left to a new file."""
        ...

    def gather(self, memory: int) -> int:
        """Take records, by bytes, as many as `memory` bytes hold, into canonical order. Returns their size."""
        ...

    def gathered(self, path: Path | None = None) -> Shard:
        """Return what was gathered last; in a new file if there is a `path`, and something to write."""
        ...

    def counts(self) -> PretokenCounts:
        """Return all records, by count, as one table."""
        ...


def kway_sum(runs: Sequence[Shard], order: Order, buffer_size: int) -> KWaySum:
    """Return a merge, the best that is here; `buffer_size` is what it reads at a time of each file."""
    # MOVED

    try:
        return NativeKWaySum(runs, order, buffer_size)
    except NativeUnavailableError:
        return PythonKWaySum(runs, order)


class PythonKWaySum:
    """A merge of the standard library's heapq."""

    def __init__(self, runs: Sequence[Shard], order: Order) -> None:
        self._partition = runs[0].partition if runs else 0
        self._runs = runs
        self._records = _added_up(runs) if order == "bytes" else _in_canonical_order(runs)
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

    def write(self, path: Path) -> Shard:
        return Shard.pack(self._partition, self._records, path)

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


def _added_up(runs: Sequence[Shard]) -> Iterator[tuple[bytes, int]]:
    last, total = b"", 0
    for token, count in heapq.merge(*(_checked(run, itemgetter(0)) for run in runs), key=itemgetter(0)):
        if token != last and last:
            yield last, total
            total = 0
        last, total = token, total + count
        if total > MAX_COUNT:
            raise CountOverflowError(f"the count of pre-token {token!r} is {total}, which does not fit 64 bits")
    if last:
        yield last, total


def _in_canonical_order(runs: Sequence[Shard]) -> Iterator[tuple[bytes, int]]:
    return heapq.merge(*(_checked(run, _canonical) for run in runs), key=_canonical)


def _canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def _checked(run: Shard, key: Callable[[tuple[bytes, int]], Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the records, and see that they are in order."""
    last = None
    for item in run.items():
        if last is not None and key(item) < key(last):
            raise run.damaged()
        yield item
        last = item


#: Records that the calling process takes between two looks at whether it was interrupted: some 50 ms of them.
_STEP = 1_000_000

#: The numbers of the orders: enum bpeflow_shard_order of the header.
_ORDERS: dict[Order, int] = {"bytes": 0, "count": 1}
_NO_RUN = 2**64 - 1


class _Run(ctypes.Structure):
    """bpeflow_shard of the header."""

    _fields_ = (("data", c_void_p), ("path", c_char_p), ("tokens", c_uint64), ("size", c_uint64))


_COUNT = POINTER(c_uint64)

_SIGNATURES: dict[str, Signature] = {
    "bpeflow_kway_new": (c_int, [POINTER(_Run), c_uint64, c_uint32, c_uint64, POINTER(c_void_p)], check_status),
    "bpeflow_kway_failed": (c_uint64, [c_void_p], None),
    "bpeflow_kway_ended": (c_int, [c_void_p, POINTER(c_uint32)], check_status),
    "bpeflow_kway_read": (
        c_int,
        [c_void_p, c_uint64, c_uint64, c_int64, c_void_p, c_void_p, c_void_p, _COUNT, _COUNT],
        check_status,
    ),
    "bpeflow_kway_write": (c_int, [c_void_p, c_char_p, _COUNT, _COUNT], check_status),
    "bpeflow_kway_gather": (c_int, [c_void_p, c_uint64, _COUNT, _COUNT], check_status),
    "bpeflow_kway_save": (c_int, [c_void_p, c_void_p, c_char_p], check_status),
    "bpeflow_kway_free": (None, [c_void_p], None),
}


@cache
def _library() -> ctypes.CDLL:
    return load_library("count", _SIGNATURES)


class NativeKWaySum:
    """A merge in native memory, behind a handle that is freed at the end of its block or when it is forgotten."""

    def __init__(self, runs: Sequence[Shard], order: Order, buffer_size: int) -> None:
        """Take runs, whose memory is borrowed. Raises `NativeUnavailableError` where there is no native library."""
        self._library = _library()
        self._runs = [run for run in runs if len(run)]
        self._partition = runs[0].partition if runs else 0
        self._gathered = c_uint64(), c_uint64()
        self._handle = c_void_p()
        given = (_Run * len(self._runs))(*map(_as_native, self._runs))
        self._library.bpeflow_kway_new(given, len(given), _ORDERS[order], buffer_size, byref(self._handle))
        handle = c_void_p(self._handle.value)
        self._free = weakref.finalize(self, self._library.bpeflow_kway_free, handle)

    def __enter__(self) -> NativeKWaySum:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle = c_void_p()  # which every function refuses
        self._free()

    @property
    def ended(self) -> bool:
        ended = c_uint32()
        with self._files():
            self._library.bpeflow_kway_ended(self._handle, byref(ended))
        return bool(ended.value)

    def write(self, path: Path) -> Shard:
        tokens, size = c_uint64(), c_uint64()
        with self._files(path):
            self._library.bpeflow_kway_write(self._handle, os.fsencode(path), byref(tokens), byref(size))
        return Shard.in_file(self._partition, tokens.value, size.value, path)

    def gather(self, memory: int) -> int:
        tokens, size = self._gathered
        with self._files():
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
        with writing(path):
            self._library.bpeflow_kway_save(self._handle, None, os.fsencode(path))
        return Shard.in_file(self._partition, tokens, size, path)

    def counts(self) -> PretokenCounts:
        import numpy as np  # here, for workers, which do without, start in half the time

        from bpeflow.counting.counts import PretokenCounts

        for run in self._runs:
            if run.token_bytes < len(run):  # else there may be more to make room for than there is memory
                raise run.damaged()
        wanted = sum(len(run) for run in self._runs)
        data = np.empty(sum(run.token_bytes for run in self._runs), dtype=np.uint8)
        offsets = np.zeros(wanted + 1, dtype=np.int64)
        counts = np.empty(wanted, dtype=np.int64)
        done, end = 0, 0
        tokens, size = c_uint64(), c_uint64()
        with self._files():
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
                    raise FormatError("runs of counts with other pre-tokens than they should have")
                done, end = done + tokens.value, end + size.value
        return PretokenCounts(data, offsets, counts)

    @contextmanager
    def _files(self, output: Path | None = None) -> Iterator[None]:
        """Say which file it was that could not be read or written."""
        try:
            yield
        except (OSError, FormatError) as error:
            number = self._library.bpeflow_kway_failed(self._handle)
            path = output if number == _NO_RUN else self._runs[number].path
            if path is None:
                raise
            if isinstance(error, FormatError):
                raise damaged(path) from None
            raise cannot_write(path, error) if number == _NO_RUN else cannot_read(path, error) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do if this file cannot be written."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def address(data: bytes | bytearray) -> int:
    """Where the bytes begin; they must be kept alive."""
    if isinstance(data, bytearray):
        return ctypes.addressof((c_char * len(data)).from_buffer(data))
    return ctypes.cast(c_char_p(data), c_void_p).value or 0


def _as_native(run: Shard) -> _Run:
    if run.data is not None:
        return _Run(address(run.data), None, run.tokens, run.size)
    return _Run(None, os.fsencode(run.path or ""), run.tokens, run.size)
