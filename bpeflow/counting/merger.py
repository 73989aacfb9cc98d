"""The merger: adds up the counts of the partition that it owns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MAX_OPEN_SHARDS, MemoryBudget
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.kway import Order, kway_sum
from bpeflow.counting.shards import Scratch, Shard, Spilled

#: Which merger owns a run; names it for the flow framework, which routes by it.
partition_of = attrgetter("partition")


@dataclass(frozen=True)
class CountMerger:
    """What each merger worker runs: a stage function, picklable.

    It keeps the runs that it is sent, in ascending order of bytes, until the last one has come. Then it merges them in
    one stream, of which it gathers as much as its memory holds and sorts that into canonical order: as a rule all of
    it, and that is the result. Otherwise these pieces are files, which are merged once more, in canonical order.

    For a segment (`segments`) the result is one file in order of bytes, to be merged with other segments'.

    Attributes:
        memory: what it may take.
        scratch: where it may write.
        max_open: files that it reads at a time.
        order: of the result.
    """

    memory: MemoryBudget
    scratch: Scratch
    max_open: int = MAX_OPEN_SHARDS
    order: Order = "count"

    def __call__(self, runs: Iterable[Shard]) -> Iterator[Shard]:
        """Yield one run for each partition met when the input ends.

        A merger of several meets one partition; the calling process, where it stands for all of them, meets all.
        """
        partitions: dict[int, list[Shard]] = {}
        for run in runs:
            partitions.setdefault(run.partition, []).append(run)
        for partition in sorted(partitions):
            yield self._merged(partitions.pop(partition))

    def _merged(self, runs: list[Shard]) -> Shard:
        statistics = sum((run.statistics for run in runs), start=DocumentStatistics())
        spilled = sum((run.spilled for run in runs), start=Spilled())
        runs, spilled = self._fewer_files(runs, "bytes", spilled)
        if self.order == "bytes":
            merged = self._merged_file(runs, "bytes")
            return replace(merged, statistics=statistics, spilled=spilled)  # itself not for lack of memory
        pieces = self._sorted_pieces(runs)
        spilled = sum((piece.spilled for piece in pieces), start=spilled)
        if len(pieces) > 1:
            pieces, spilled = self._fewer_files(pieces, "count", spilled)
            pieces = [self._merged_file(pieces, "count")]
            spilled += pieces[0].spilled
        return replace(pieces[0], statistics=statistics, spilled=spilled)

    def _fewer_files(self, runs: list[Shard], order: Order, spilled: Spilled) -> tuple[list[Shard], Spilled]:
        """Merge files until there are no more than may be read at a time; the small ones, to write as little as can be.

        Returns the runs, and `spilled` with what was written.
        """
        most = self.memory.open_shards(self.max_open)
        kept = [run for run in runs if run.path is None]
        files = [run for run in runs if run.path is not None]
        while len(files) > most:
            files.sort(key=len)
            some = min(most, len(files) - most + 1)
            merged = self._merged_file(files[:some], order)
            spilled += merged.spilled
            files = [*files[some:], merged]
        return kept + files, spilled

    def _merged_file(self, files: Sequence[Shard], order: Order) -> Shard:
        with kway_sum(files, order, self.memory.buffer_size(len(files))) as merge:
            merged = merge.write(self.scratch.new_path("merger"))
        for file in files:
            file.remove()
        return merged

    def _sorted_pieces(self, runs: Sequence[Shard]) -> list[Shard]:
        """Merge runs that are in order of bytes, and return the sum in pieces, at least one, in canonical order."""
        pieces: list[Shard] = []
        held = sum(run.size for run in runs if run.path is None)
        files = [run for run in runs if run.path is not None]
        with kway_sum(runs, "bytes", self.memory.buffer_size(len(files))) as merge:
            while not merge.ended or not pieces:
                size = merge.gather(self.memory.sorting(held))
                send = not pieces and merge.ended and size <= self.memory.largest_sent_result
                pieces.append(merge.gathered(None if send else self.scratch.new_path("merger")))
        for file in files:
            file.remove()
        return pieces


def reduce_shards(runs: Sequence[Shard], memory: MemoryBudget) -> tuple[PretokenCounts, DocumentStatistics]:
    """Put the partitions, each in canonical order and none with a pre-token of another, together into one table."""
    documents = sum((run.statistics for run in runs), start=DocumentStatistics())
    with kway_sum(runs, "count", memory.buffer_size(len(runs))) as merge:
        return merge.counts(), documents
