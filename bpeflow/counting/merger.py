"""The merger stage: adds up the counts of the partitions that it owns. And the reducer, which joins all partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.kway import kway_sum
from bpeflow.counting.shards import Scratch, Shard, Spilled
from bpeflow.counting.table import SharedTables

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts  # numpy, which workers do without


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
    documents = sum((shard.statistics for shard in sums), start=DocumentStatistics())
    if shared is not None and len(shared):
        documents += shared.statistics
        if not sums:
            return shared.join(), documents
        tables = shared.shards()
        sums = [merger.sum_partition([shard, *tables], shard.partitions.start) for shard in sums]
    parts = [shard.select(range(number, number + 1)) for shard in sums for number in shard.partitions]
    counts = kway_sum([part for part in parts if len(part)], merger.memory.buffer_size(len(parts))).counts()
    return counts, documents
