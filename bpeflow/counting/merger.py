"""The merger: adds up the counts of the partition that it owns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.run import CountRun
from bpeflow.counting.table import CountTable, new_merge_table

#: Which merger owns a run; names it for the flow framework, which routes by it.
owner = attrgetter("partition")


def merge_runs(runs: Iterable[CountRun]) -> Iterator[CountRun]:
    """Add up all runs of each partition met, and yield one run for each, in canonical order, when the input ends.

    A merger of several meets one partition; the calling process, where it stands for all of them, meets all.
    """
    tables: dict[int, CountTable] = {}
    statistics: dict[int, DocumentStatistics] = {}
    for run in runs:
        if run.partition not in tables:
            tables[run.partition] = new_merge_table()
        tables[run.partition].add(run)
        statistics[run.partition] = statistics.get(run.partition, DocumentStatistics()) + run.statistics
    for partition, table in tables.items():
        yield replace(table.run(), partition=partition, statistics=statistics[partition])
