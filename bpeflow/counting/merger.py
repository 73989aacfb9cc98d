"""Adding up: the merger stage, the reducer, which joins all partitions, and the k-way sum of both.

The k-way sum reads the same partition of several shards as streams, so it takes little memory, and any number of shards
can be read at the same time. `PythonSum` is the reference implementation in plain Python, which tests compare with the
native one (source: ``ext/count/kway.hpp``, tens of millions of records a second).
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint64
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from bpeflow._util import native
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.shards import RECORD, Scratch, Shard, Spilled, address
from bpeflow.counting.table import SharedTables
from bpeflow.errors import FormatError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts  # numpy, which workers do without

#: Records placed per native call, which takes about 50 ms. Python handles Ctrl-C between two calls: with more records
#: it is handled later, with fewer the overhead of the calls adds up.
_STEP = 1_000_000


@dataclass(frozen=True)
class CountMerger:
    """The picklable stage function of a merger.

    A merger collects the shards sent to it until the input ends. Then it sums them, a partition at a time. Sums are
    sent in memory as long as they are small, and otherwise written to files. The sum of a partition that only one shard
    has is that part of the shard.

    Attributes:
        memory: the merger's share of the memory limit.
        scratch: where to write files.
    """

    memory: MemoryBudget
    scratch: Scratch

    def __call__(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Yield the sum of each partition, in order, when the input ends. All shards have the same partitions."""
        shards = list(shards)
        statistics = sum((shard.statistics for shard in shards), start=DocumentStatistics())
        spilled = sum((shard.spilled for shard in shards), start=Spilled())
        room = self.memory.largest_sent_result
        for partition in shards[0].partitions if shards else ():
            summed = self.sum_partition(shards, partition, room)
            room -= summed.size if summed.path is None else 0
            # Those of all partitions go with the first. Where a shard was alone, what it spilled is among `spilled`.
            yield replace(summed, statistics=statistics, spilled=spilled + summed.spilled)
            statistics, spilled = DocumentStatistics(), Spilled()

    def sum_partition(self, shards: Sequence[Shard], partition: int, room: int = 0) -> Shard:
        """Return the sum of a partition: in memory if it has at most `room` bytes, else in a new scratch file."""
        own = range(partition, partition + 1)
        selected = [replace(shard.select(own), statistics=DocumentStatistics(), spilled=Spilled()) for shard in shards]
        parts = [part for part in selected if len(part)]
        size = sum(part.size for part in parts)
        if not parts or (len(parts) == 1 and (parts[0].path or size <= room)):
            return parts[0] if parts else selected[0]
        path = None if size <= room else self.scratch.new_path("merger")
        return kway_sum(parts, self.memory.buffer_size(len(parts))).write(path)


def reduce_shards(
    sums: Sequence[Shard], merger: CountMerger, shared: SharedTables | None = None
) -> tuple[PretokenCounts, DocumentStatistics]:
    """Join the sums of all partitions into one table, in canonical order.

    Args:
        sums: the sums that mergers sent.
        merger: a merger, for tables that are left where other counters had to spill.
        shared: tables that counters in the same process left. If no counter had to spill, there is nothing else.
    """
    from bpeflow.counting.counts import PretokenCounts

    documents = sum((shard.statistics for shard in sums), start=DocumentStatistics())
    if shared is not None and len(shared):
        documents += shared.statistics
        if not sums:
            return PretokenCounts(*shared.join()), documents
        tables = shared.shards()
        sums = [merger.sum_partition([shard, *tables], shard.partitions.start) for shard in sums]
    parts = [shard.select(range(number, number + 1)) for shard in sums for number in shard.partitions]
    counts = kway_sum([part for part in parts if len(part)], merger.memory.buffer_size(len(parts))).counts()
    return counts, documents


class PythonSum:
    """The reference implementation, on the standard library's `heapq`."""

    def __init__(self, shards: Sequence[Shard], buffer_size: int = 0) -> None:  # noqa: ARG002
        self._shards = shards

    def write(self, path: Path | None = None) -> Shard:
        """Return the sum of the shards, in memory or in a new file at `path`."""
        return Shard.pack(_summed(self._shards), path, self._shards[0].partitions)

    def counts(self) -> PretokenCounts:
        """Return the counts in shards that have no pre-token in common."""
        from bpeflow.counting.counts import PretokenCounts

        return PretokenCounts.from_items(chain.from_iterable(shard.items() for shard in self._shards))


def _summed(shards: Sequence[Shard]) -> Iterator[tuple[bytes, int]]:
    last, total = b"", 0
    for token, count in heapq.merge(*(shard.items() for shard in shards), key=itemgetter(0)):
        if token != last and last:
            yield last, total
            total = 0
        last, total = token, total + count
    if last:
        yield last, total


class NativeSum:
    """The native implementation."""

    def __init__(self, shards: Sequence[Shard], buffer_size: int) -> None:
        """Raises `NativeUnavailableError` without the native library."""
        self._library = native.load_library("count")
        self._shards = shards
        natives = (native.Shard * len(self._shards))(*map(_as_native, self._shards))
        self._handle = native.Handle(self._library, "kway", natives, len(natives), buffer_size)

    def write(self, path: Path | None = None) -> Shard:
        """Return the sum of the shards, in memory or in a new file at `path`."""
        write = partial(self._library.bpeflow_kway_write, self._handle)
        with self._file_errors():
            return Shard.written(write, self._shards[0].partitions, sum(shard.size for shard in self._shards), path)

    def counts(self) -> PretokenCounts:
        """Return the counts in shards that have no pre-token in common."""
        import numpy as np  # late, as workers do not need it and start in half the time without

        from bpeflow.counting.counts import PretokenCounts

        tokens, left = sum(map(len, self._shards)), c_uint64(1)
        size = sum(shard.size for shard in self._shards) - tokens * RECORD.size
        with self._file_errors():
            if size < tokens:
                raise FormatError("pre-tokens without bytes")
            data, counts = np.empty(size, dtype=np.uint8), np.empty(tokens, dtype=np.int64)
            offsets = np.zeros(tokens + 1, dtype=np.int64)
            columns = [array.ctypes.data for array in (data, offsets, counts)]
            while tokens and left.value:
                self._library.bpeflow_kway_place(self._handle, _STEP, *columns, byref(left))
        return PretokenCounts(data, offsets, counts)

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """Turn errors in the block into errors that name the file that was read."""
        try:
            yield
        except (OSError, FormatError):
            for shard in self._shards:
                for _ in shard.items():  # raises if it was this one
                    pass
            raise


def _as_native(shard: Shard) -> native.Shard:
    if shard.path is None:
        return native.Shard(address(shard.data or bytearray()), None, len(shard), shard.size, 0)
    return native.Shard(None, os.fsencode(shard.path), len(shard), shard.size, shard.offset)


def kway_sum(shards: Sequence[Shard], buffer_size: int) -> NativeSum | PythonSum:
    """Return the sum of shards: the native one if available, else the Python one.

    Its methods raise `CountOverflowError` if a sum does not fit 64 bits, and `ScratchError` if a file cannot be read or
    written, or is damaged.

    Args:
        shards: for `write` the same partition of each, which have records; for `counts` each partition once.
        buffer_size: bytes that the native sum reads of a file at a time.
    """
    try:
        return NativeSum(shards, buffer_size)
    except NativeUnavailableError:
        return PythonSum(shards)
