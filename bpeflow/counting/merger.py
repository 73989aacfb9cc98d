"""The merger stage: adds up the counts of the partition that it owns. And the reducer, which joins the partitions.

The shards of all segments are not partitioned. Their sum is divided into ranges of pre-tokens, summed independently.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MAX_OPEN_SHARDS, MemoryBudget
from bpeflow.counting.kway import kway_sum
from bpeflow.counting.shards import EVERYTHING, KeyRange, Mark, Order, Scratch, Shard, Spilled
from bpeflow.counting.shared_tables import SharedTables, TablePart

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts  # numpy, which workers do without

#: Get the index of the merger that owns a shard. The flow framework routes shards by it.
partition_of = attrgetter("partition")


@dataclass(frozen=True)
class CountMerger:
    """The picklable stage function of a merger.

    A merger collects the shards sent to it, in ascending order of bytes, until the input ends. Then it computes their
    k-way sum in one pass. It gathers as much of the sum as its memory holds and sorts that into canonical order.
    Usually that is all of the sum, and the result. Otherwise the sorted pieces are written to files, and a second
    k-way sum, in canonical order, joins them.

    Counters in the same process leave their tables in `shared`, and send parts of these instead of shards. If no
    counter had to spill, the tables are added up without sorting them first.

    With `order="bytes"`, for a segment, the result is one shard in ascending order of bytes, to be added to those of
    other segments. A shard that is alone is the result as it is.

    Attributes:
        memory: the merger's share of the memory limit.
        scratch: where to write files.
        max_open: number of files read at the same time, at most.
        order: order of the result.
        shared: the tables of counters in the same process.
    """

    memory: MemoryBudget
    scratch: Scratch
    max_open: int = MAX_OPEN_SHARDS
    order: Order = "count"
    shared: SharedTables = field(default_factory=SharedTables)

    def __call__(self, shards: Iterable[Shard | TablePart]) -> Iterator[Shard]:
        """Yield the sum of the shards, which all belong to the merger's partition, when the input ends."""
        collected = list(shards)
        parts = [part for part in collected if isinstance(part, TablePart)]
        if parts and len(parts) == len(collected) and self.order == "count":
            yield self.shared.sum(parts)
        elif collected:
            yield self._sum_partition(
                [self.shared.shard(shard) if isinstance(shard, TablePart) else shard for shard in collected]
            )

    def sum_range(self, task: RangeSum) -> Shard:
        """Return the sum of shards in a range of pre-tokens, in canonical order."""
        return self._sum_partition(list(task.shards), task.key_range)

    def sum_ranges(self, tasks: Iterable[RangeSum]) -> Iterator[Shard]:
        """Yield the sum of each range: a stage function for the shards of segments, which are not partitioned."""
        return map(self.sum_range, tasks)

    def _sum_partition(self, shards: list[Shard], key_range: KeyRange = EVERYTHING) -> Shard:
        statistics = sum((shard.statistics for shard in shards), start=DocumentStatistics())
        spilled = sum((shard.spilled for shard in shards), start=Spilled())
        shards, spilled = self._limit_files(shards, "bytes", spilled, key_range)
        if self.order == "bytes":
            alone = len(shards) == 1 and (shards[0].path or shards[0].size <= self.memory.largest_sent_result)
            summed = shards[0] if alone else self._sum_to_file(shards, "bytes")
            # The result itself does not count as spilled: it is a file whatever the memory.
            return replace(summed, statistics=statistics, spilled=spilled)
        pieces = self._sorted_pieces(shards, key_range)
        spilled = sum((piece.spilled for piece in pieces), start=spilled)
        if len(pieces) > 1:
            pieces, spilled = self._limit_files(pieces, "count", spilled)
            pieces = [self._sum_to_file(pieces, "count")]
            spilled += pieces[0].spilled
        return replace(pieces[0], statistics=statistics, spilled=spilled)

    def _limit_files(
        self, shards: list[Shard], order: Order, spilled: Spilled, key_range: KeyRange = EVERYTHING
    ) -> tuple[list[Shard], Spilled]:
        """Sum files until no more are left than may be read at the same time: the smallest ones, to write the least.

        Returns the shards, and `spilled` plus the amount written.
        """
        limit = self.memory.open_shards(self.max_open)
        in_memory = [shard for shard in shards if shard.path is None]
        files = [shard for shard in shards if shard.path is not None]
        while len(files) > limit:
            files.sort(key=len)
            smallest = min(limit, len(files) - limit + 1)
            summed = self._sum_to_file(files[:smallest], order, key_range)
            spilled += summed.spilled
            files = [*files[smallest:], summed]
        return in_memory + files, spilled

    def _sum_to_file(self, shards: Sequence[Shard], order: Order, key_range: KeyRange = EVERYTHING) -> Shard:
        with kway_sum(shards, order, self.memory.buffer_size(len(shards)), key_range) as total:
            summed = total.write(self.scratch.new_path("merger"))
        for shard in shards:
            shard.remove()
        return summed

    def _sorted_pieces(self, shards: Sequence[Shard], key_range: KeyRange) -> list[Shard]:
        """Sum shards that are in order of bytes. Returns the sum in one or more pieces, each in canonical order."""
        pieces: list[Shard] = []
        held = sum(shard.size for shard in shards if shard.path is None)
        files = [shard for shard in shards if shard.path is not None]
        with kway_sum(shards, "bytes", self.memory.buffer_size(len(files)), key_range) as total:
            while not total.ended or not pieces:
                size = total.gather(self.memory.sorting(held))
                send = not pieces and total.ended and size <= self.memory.largest_sent_result
                pieces.append(total.gathered(None if send else self.scratch.new_path("merger")))
        for file in files:
            file.remove()
        return pieces


def reduce_shards(
    shards: Sequence[Shard], memory: MemoryBudget, shared: SharedTables | None = None
) -> tuple[PretokenCounts, DocumentStatistics]:
    """Join the partitions into one table.

    Each is in canonical order, or its sum is in `shared`. No pre-token is in two of them.
    """
    documents = sum((shard.statistics for shard in shards), start=DocumentStatistics())
    if shared is not None and shared.summed:  # of all partitions: a counter leaves its whole table there, or none of it
        return shared.join(), documents
    with kway_sum(shards, "count", memory.buffer_size(len(shards))) as total:
        return total.counts(), documents


@dataclass(frozen=True)
class RangeSum:
    """The task to sum shards in a range of pre-tokens.

    Attributes:
        key_range: the range.
        shards: the parts of durable shards by bytes that have all their records in the range, and a few others.
    """

    key_range: KeyRange
    shards: tuple[Shard, ...]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(shard.size for shard in self.shards)


def divide(shards: Sequence[Shard], parts: int) -> list[RangeSum]:
    """Divide the sum of durable shards into ranges of about the same size.

    The ranges cover all pre-tokens and have none in common. They begin at marks of shards, so there are fewer of them
    if the shards are small.

    Args:
        shards: shards in order of bytes, with marks.
        parts: the number of ranges wanted.
    """
    places = [_places(shard) for shard in shards]
    blocks = sorted((begin.key, end.offset - begin.offset) for own in places for begin, end in pairwise(own))
    total = sum(size for _, size in blocks)
    bounds: list[bytes] = []
    before = 0  # the bytes in blocks that begin below `key`
    for key, size in blocks:
        if key and before * parts >= total * (len(bounds) + 1) and key not in bounds[-1:]:
            bounds.append(key)
        before += size
    return [
        RangeSum(limits, tuple(filter(len, (_part(*pair, limits) for pair in zip(shards, places, strict=True)))))
        for limits in map(KeyRange, [None, *bounds], [*bounds, None])
    ]


def _places(shard: Shard) -> list[Mark]:
    """Return the begin of a shard, its marks, and its end."""
    return [Mark(b"", 0, 0), *shard.marks, Mark(b"", shard.size, shard.tokens)]


def _part(shard: Shard, places: Sequence[Mark], key_range: KeyRange) -> Shard:
    """Return the part of a shard from the last of its places at or before a range to the first one after it."""
    key, end = attrgetter("key"), len(places) - 1
    first = 0 if key_range.low is None else bisect_right(places, key_range.low, 1, end, key=key) - 1
    last = end if key_range.high is None else bisect_left(places, key_range.high, 1, end, key=key)
    return shard.part(places[first], places[last])
