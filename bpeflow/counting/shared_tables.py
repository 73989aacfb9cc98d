"""Tables of counters in the same process, which are added up and then sorted (source: ``ext/count/sum.hpp``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import Array, byref, c_uint64, c_void_p
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

from bpeflow._util.native import Handle, load_library
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.shards import Shard, owned_partitions
from bpeflow.counting.table import NativeTable

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts


@dataclass(frozen=True)
class TablePart:
    """A partition of a counter's table in `SharedTables`, which is sent in place of a shard.

    Each merger has a partition of its own, which are not the partitions of shards.

    Attributes:
        number: the table.
        merger: index of the merger that it is sent to.
        mergers: number of mergers.
        statistics: as of a `Shard`.
        size: bytes to send to the merger.
    """

    number: int
    merger: int
    mergers: int
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    size: int = 0


class SharedTables:
    """The full tables of counters, for mergers in the same process: they need not be sorted and copied first."""

    def __init__(self) -> None:
        self._tables: dict[int, NativeTable] = {}
        self._shards: dict[int, Shard] = {}
        self._sums: dict[int, Handle] = {}
        self._lock = Lock()

    @property
    def summed(self) -> bool:
        """Whether there are sums to join."""
        return bool(self._sums)

    def share(self, table: NativeTable, weight: int, mergers: int) -> Iterator[TablePart]:
        """Add a table, in which nothing is counted any more, and yield its parts. `weight` multiplies its counts."""
        table.settle(weight)
        self._tables[id(table)] = table
        return (TablePart(id(table), merger, mergers) for merger in range(mergers))

    def shard(self, part: TablePart) -> Shard:
        """Return the partitions of a table that a merger owns as a shard. Raises `CountOverflowError`."""
        with self._lock:
            if part.number not in self._shards:
                self._shards[part.number] = self._tables[part.number].shard()
        shard = self._shards[part.number].select(owned_partitions(part.mergers)[part.merger])
        return replace(shard, statistics=part.statistics)

    def sum(self, parts: Sequence[TablePart]) -> Shard:
        """Add up the same partition of several tables, which uses up their counts, for `join`.

        Faster than the sum of shards, as pre-tokens are sorted only once, after those of all tables have been added up.

        Returns:
            A shard without the records, which stay in the tables.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
        """
        first = parts[0]
        tables = [self._tables[part.number].handle for part in parts]
        arguments = (_array(tables), len(tables), first.merger, first.mergers)
        self._sums[first.merger] = Handle(load_library("count"), "sum", *arguments)
        statistics = sum((part.statistics for part in parts), start=DocumentStatistics())
        return replace(Shard.empty(), statistics=statistics)

    def join(self) -> PretokenCounts:
        """Sort the sums of all partitions, in as many threads, and forget the tables."""
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np  # late, as workers do not need it and start in half the time without

        from bpeflow.counting.counts import PretokenCounts

        sums = [self._sums[merger] for merger in sorted(self._sums)]
        with ThreadPoolExecutor(len(sums)) as threads:
            parts = list(threads.map(partial(_SortedPart, sums), range(len(sums))))
            self._sums.clear()
            starts = list(accumulate((part.tokens for part in parts), initial=0))
            begins = list(accumulate((part.bytes for part in parts), initial=0))
            data, counts = np.empty(begins[-1], dtype=np.uint8), np.empty(starts[-1], dtype=np.int64)
            offsets = np.zeros(starts[-1] + 1, dtype=np.int64)

            def write(part: _SortedPart, start: int, begin: int) -> None:
                columns = (data[begin:], offsets[start + 1 :], counts[start:])
                part.write(begin, *(column.ctypes.data for column in columns))

            list(threads.map(write, parts, starts, begins))
        self._tables.clear()
        return PretokenCounts(data, offsets, counts)


class _SortedPart:
    """`bpeflow_sorted` of the header, of tables that must be kept. It is freed together with the object."""

    def __init__(self, sums: Sequence[Handle], number: int) -> None:
        tokens, size = c_uint64(), c_uint64()
        self._library = load_library("count")
        arguments, results = (_array(sums), len(sums), number, len(sums)), (byref(tokens), byref(size))
        self._handle = Handle(self._library, "sorted", *arguments, results=results)
        self.tokens, self.bytes = tokens.value, size.value

    def write(self, begin: int, data: int, ends: int, counts: int) -> None:
        self._library.bpeflow_sorted_write(self._handle, begin, data, ends, counts)


def _array(handles: Sequence[Handle]) -> Array[c_void_p]:
    return (c_void_p * len(handles))(*(handle.value for handle in handles))
