"""Merging runs of counts: what a merge can do, and the plain Python one, which says what is right.

`native_merge` has the fast one. Both give the same bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bpeflow.counting.interchange import MAX_COUNT
from bpeflow.counting.run import RECORD, CountRun
from bpeflow.errors import CountOverflowError, NativeUnavailable

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts

#: By bytes, ascending: a pre-token may be in several runs, whose counts are added up. By count: the canonical order,
#: count descending, then bytes ascending; no pre-token is in two runs.
Order = Literal["bytes", "count"]

#: What a pre-token and its count take as Python's objects, besides the bytes: about.
_ITEM = 150


class RunMerge(Protocol):
    """The records of several runs, which are in the same order, as one sequence in that order; it is read once.

    A context manager that frees its memory. What reads raises `CountOverflowError` for a sum that does not fit 64 bits
    and `ScratchError` for a file that cannot be read or is damaged; what writes, for one that cannot be written.
    """

    def __enter__(self) -> RunMerge: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def ended(self) -> bool:
        """Whether all records have been given."""
        ...

    def write(self, path: Path) -> CountRun:
        """Write all records that are left to a new file."""
        ...

    def gather(self, memory: int) -> int:
        """Take records, by bytes, as many as `memory` bytes hold, into canonical order. Returns their size."""
        ...

    def gathered(self, path: Path | None = None) -> CountRun:
        """Return what was gathered last; in a new file if there is a `path`, and something to write."""
        ...

    def counts(self) -> PretokenCounts:
        """Return all records, by count, as one table."""
        ...


def new_merge(runs: Sequence[CountRun], order: Order, buffer_size: int) -> RunMerge:
    """Return a merge, the best that is here; `buffer_size` is what it reads at a time of each file."""
    from bpeflow.counting.native_merge import NativeRunMerge  # which has its contract from here

    try:
        return NativeRunMerge(runs, order, buffer_size)
    except NativeUnavailable:
        return PythonRunMerge(runs, order)


class PythonRunMerge:
    """A merge of the standard library's heapq."""

    def __init__(self, runs: Sequence[CountRun], order: Order) -> None:
        self._partition = runs[0].partition if runs else 0
        self._runs = runs
        self._records = _added_up(runs) if order == "bytes" else _in_canonical_order(runs)
        self._gathered: list[tuple[bytes, int]] = []

    def __enter__(self) -> PythonRunMerge:
        return self

    def __exit__(self, *_: object) -> None:
        self._gathered = []

    @property
    def ended(self) -> bool:
        for record in self._records:
            self._records = chain([record], self._records)
            return False
        return True

    def write(self, path: Path) -> CountRun:
        return CountRun.pack(self._partition, self._records, path)

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

    def gathered(self, path: Path | None = None) -> CountRun:
        return CountRun.pack(self._partition, self._gathered, path if self._gathered else None)

    def counts(self) -> PretokenCounts:
        from bpeflow.counting.counts import PretokenCounts  # numpy, which workers do without

        return PretokenCounts.from_items(self._records)


def _added_up(runs: Sequence[CountRun]) -> Iterator[tuple[bytes, int]]:
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


def _in_canonical_order(runs: Sequence[CountRun]) -> Iterator[tuple[bytes, int]]:
    return heapq.merge(*(_checked(run, _canonical) for run in runs), key=_canonical)


def _canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def _checked(run: CountRun, key: Callable[[tuple[bytes, int]], Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the records, and see that they are in order."""
    last = None
    for item in run.items():
        if last is not None and key(item) < key(last):
            raise run.damaged()
        yield item
        last = item
