"""The reducer: puts the mergers' partitions together as `PretokenCounts`, in the main process."""

from __future__ import annotations

from collections.abc import Sequence

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.memory import Memory
from bpeflow.counting.merge import new_merge
from bpeflow.counting.run import CountRun


def reduce_runs(runs: Sequence[CountRun], memory: Memory) -> tuple[PretokenCounts, DocumentStatistics]:
    """Put the partitions, each in canonical order and none with a pre-token of another, together into one table."""
    documents = sum((run.statistics for run in runs), start=DocumentStatistics())
    with new_merge(runs, "count", memory.buffer_size(len(runs))) as merge:
        return merge.counts(), documents
