"""Tables of counters in the same process, which are added up and then sorted (source: ``ext/count/sum.hpp``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import byref, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from bpeflow._util.native import Handle, load_library
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.shards import Shard
from bpeflow.counting.table import NativeTable, weighted

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts


@dataclass(frozen=True)
class TablePart:
    """A partition of a counter's table in `SharedTables`, which is sent in place of a shard.

    Attributes:
        number: the table.
        partition: index of the merger that owns it.
        partitions: number of mergers.
        statistics: as of a `Shard`.
        size: bytes to send to the merger.
    """

    number: int
    partition: int
    partitions: int
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    size: int = 0


class SharedTables:
    """The full tables of counters, for mergers in the same process: they need not be sorted and copied first."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[NativeTable, int]] = {}
        self._sums: dict[int, _Sum] = {}

    @property
    def summed(self) -> bool:
        """Whether there are sums to join."""
        return bool(self._sums)

    def share(self, table: NativeTable, weight: int, partitions: int) -> Iterator[TablePart]:
        """Add a table, in which nothing is counted any more, and yield its parts. `weight` multiplies its counts."""
        table.settle()
        self._tables[id(table)] = table, weight
        return (TablePart(id(table), partition, partitions) for partition in range(partitions))

    def shard(self, part: TablePart) -> Shard:
        """Return a part as a shard, in ascending order of bytes. Raises `CountOverflowError`."""
        table, weight = self._tables[part.number]
        return replace(weighted(table.shard(part.partition, part.partitions), weight), statistics=part.statistics)

    def sum(self, parts: Sequence[TablePart]) -> Shard:
        """Add up the same partition of several tables, which uses up their counts, for `join`.

        Faster than the sum of shards, as pre-tokens are sorted only once, after those of all tables have been added up.

        Returns:
            A shard without the records, which stay in the tables.

        Raises:
            CountOverflowError: a count does not fit 64 bits.
        """
        first = parts[0]
        self._sums[first.partition] = _Sum([self._tables[part.number] for part in parts], first)
        statistics = sum((part.statistics for part in parts), start=DocumentStatistics())
        return Shard(first.partition, 0, 0, statistics=statistics)

    def join(self) -> PretokenCounts:
        """Sort the sums of all partitions, in as many threads, and forget the tables."""
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np  # late, as workers do not need it and start in half the time without

        from bpeflow.counting.counts import PretokenCounts

        sums = [self._sums[partition].handle for partition in sorted(self._sums)]
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


class _Sum:
    """`bpeflow_sum` of the header, of tables that must be kept. It is freed together with the object."""

    def __init__(self, tables: Sequence[tuple[NativeTable, int]], part: TablePart) -> None:
        handles = (c_void_p * len(tables))(*(table.handle for table, _ in tables))
        weights = (c_int64 * len(tables))(*(weight for _, weight in tables))
        arguments = (handles, weights, len(tables), part.partition, part.partitions)
        self.handle = Handle(load_library("count"), "sum", *arguments)


class _SortedPart:
    """`bpeflow_sorted` of the header, of tables that must be kept. It is freed together with the object."""

    def __init__(self, sums: Sequence[c_void_p], number: int) -> None:
        tokens, size = c_uint64(), c_uint64()
        handles = (c_void_p * len(sums))(*(handle.value for handle in sums))
        self._library = load_library("count")
        results = (byref(tokens), byref(size))
        self._handle = Handle(self._library, "sorted", handles, len(sums), number, len(sums), results=results)
        self.tokens, self.bytes = tokens.value, size.value

    def write(self, begin: int, data: int, ends: int, counts: int) -> None:
        self._library.bpeflow_sorted_write(self._handle, begin, data, ends, counts)
