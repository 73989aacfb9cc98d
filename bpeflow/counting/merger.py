"""The merger: adds up the counts of the partition that it owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.run import CountRun

#: Which merger owns a run; names it for the flow framework, which routes by it.
owner = attrgetter("partition")


def merge_runs(runs: Iterable[CountRun]) -> Iterator[CountRun]:
    """Add up all runs of each partition met, and yield one run for each, in canonical order, when the input ends.

    A merger of several meets one partition; the calling process, where it stands for all of them, meets all.
    """
    counts: dict[int, Counter[bytes]] = {}
    statistics: dict[int, DocumentStatistics] = {}
    for run in runs:
        table = counts.setdefault(run.partition, Counter())
        for token, count in run.items():
            table[token] += count
        statistics[run.partition] = statistics.get(run.partition, DocumentStatistics()) + run.statistics
    for partition, table in counts.items():
        items = sorted(table.items(), key=itemgetter(0))
        items.sort(key=itemgetter(1), reverse=True)
        yield CountRun.pack(partition, items, statistics[partition])
