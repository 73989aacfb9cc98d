"""The k-way sum: several sorted shards, added up into one sorted sequence of records.

In this order: the protocol `KWaySum`; `PythonKWaySum`, its reference implementation, which tests compare with
`native_kway`; and `kway_sum`, which picks one of the two.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from bpeflow.counting.native_kway import BLOCK, NativeKWaySum
from bpeflow.counting.shards import (
    EVERYTHING,
    MARK_LENGTH,
    MAX_COUNT,
    RECORD,
    KeyRange,
    Mark,
    Order,
    Shard,
)
from bpeflow.errors import CountOverflowError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts
    from bpeflow.counting.thinning import Arrays

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

    def blocks(self) -> Iterator[Arrays]:
        """Yield all records in blocks, whose arrays are valid until the next one."""
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

    def blocks(self) -> Iterator[Arrays]:
        import numpy as np

        from bpeflow.counting.thinning import Arrays

        for block in iter(lambda: list(islice(self._records, BLOCK)), []):
            data = np.frombuffer(b"".join(token for token, _ in block), dtype=np.uint8)
            offsets = np.array([0, *accumulate(len(token) for token, _ in block)], dtype=np.int64)
            yield Arrays(data, offsets, np.array([count for _, count in block], dtype=np.int64))

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


def kway_sum(shards: Sequence[Shard], order: Order, buffer_size: int, key_range: KeyRange = EVERYTHING) -> KWaySum:
    """Return the sum of shards that are in `order`: the native one if available, else the Python one.

    The native one reads `buffer_size` bytes of a file at a time. With a range, for which the order must be by bytes,
    all other pre-tokens are left out.
    """
    try:
        return NativeKWaySum(shards, order, buffer_size, key_range)
    except NativeUnavailableError:
        return PythonKWaySum(shards, order, key_range)
