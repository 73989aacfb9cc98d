"""Counting on a Ray cluster: tasks count the segments of a corpus and sum the counts of all.

    plan ─▶ tasks ─▶ shards in the run folder, a record of each ─▶ tasks that sum partitions ─▶ reducer

Tasks write files. Only the driver writes records and removes files, so an interrupted run resumes with the segments
recorded, on a cluster or on one machine.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from time import monotonic

from bpeflow.corpus.sources import CorpusEntry, check_unchanged
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.cluster import OTHER_FILE_REMEDY, PER_SLOT, Cluster, TaskReport, task_folder
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.pipelines import PipelineBuilder, PipelineRunner, sum_reports
from bpeflow.counting.plan import SegmentPart
from bpeflow.counting.report import EngineReport, NodeReport
from bpeflow.counting.segments import SegmentCounts, SegmentFolder, count_segment, write_segment
from bpeflow.counting.shards import PARTITIONS, Scratch, Shard, owned_partitions
from bpeflow.flow import MonitorSample, QueueDepth, StageRate, WorkerReport

#: The usual size of a segment, and the smallest. Small segments balance the load better and lose less work with a node;
#: large ones have fewer pre-tokens in common, so less is written and summed.
_SEGMENT, _MIN_SEGMENT = 1_000_000_000, 64_000_000

#: Several slots have up to this many segments each if these are at least that large, to balance the load.
_PER_SLOT, _WORTH_BALANCING = 4, 512_000_000

#: Bytes of shards that a task sums, at most, if there are partitions enough.
_TASK_BYTES = 512_000_000


@dataclass(frozen=True)
class CountTasks:
    """The functions of tasks, and what they need.

    Attributes:
        folder: the folder of segments, an absolute path.
        build: builds the pipeline that runs in a task.
    """

    folder: Path
    build: PipelineBuilder

    def count_segment(self, number: int, entries: Sequence[CorpusEntry]) -> SegmentCounts:
        """Count a part of the corpus.

        Raises:
            CorpusError: a file is unreadable, not the one that was found, or changed while it was counted.
            Exception: as `CorpusCounter.count`.
        """
        check_unchanged(entries, OTHER_FILE_REMEDY, was_read=False)
        with task_folder(self._scratch_dir, "bpeflow") as scratch:
            build = replace(self.build, scratch=Scratch(scratch))
            path = self.folder / f"{number:06d}-{token_hex(8)}.shard"
            return count_segment(path, entries, build.counting(entries), PipelineRunner(None), "threads")

    def sum_partitions(self, shards: Sequence[Shard]) -> Shard:
        """Sum some partitions of the shards of segments. Returns a shard in a file in the folder."""
        with task_folder(self._scratch_dir, "bpeflow") as scratch:
            sums = CountMerger(self.build.memory, Scratch(scratch))(shards)
            counts = write_segment(self.folder / f"sum-{token_hex(8)}.shard", sums, ())
        return replace(counts.shard(self.folder, shards[0].partitions), spilled=counts.spilled)

    @property
    def _scratch_dir(self) -> Path:
        return self.build.settings.scratch_dir or Path(tempfile.gettempdir())


class ClusterCounting:
    """Counts the segments of a corpus on a cluster, and sums them.

    Attributes:
        memory: the shares of a task's memory limit.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads = cluster.settings.cpus_per_task
        self.memory = MemoryBudget.share(int(cluster.settings.task_memory), self._threads, 1)
        self._nodes: dict[str, NodeReport] = {}
        self._counted: Counter[str] = Counter()  # bytes of input, by node
        self._began = self._sampled = monotonic()

    def segment_size(self, total: int, wanted: int) -> int:
        """Return the size of a segment of a corpus of `total` bytes, at most `wanted`.

        The segments of a small corpus are as many for each slot, so that no slot waits for another.
        """
        slots = self._cluster.slots
        balanced = min(total // (slots * _WORTH_BALANCING), _PER_SLOT) if slots > 1 else 1
        per_slot = max(balanced, round(total / (slots * _SEGMENT)), 1)
        return min(wanted, max(-(-total // (slots * per_slot)), _MIN_SEGMENT))

    def count(
        self, parts: Iterator[SegmentPart], folder: Path, build: PipelineBuilder, runner: PipelineRunner
    ) -> Iterator[tuple[SegmentPart, SegmentCounts, str, int]]:
        """Count parts of the corpus as segments, as `SegmentFolder.count` has it. Progress goes to `runner`.

        Raises:
            EngineError: a node cannot take part, or the cluster is gone.
            TaskLostError: a task was lost too often.
            Exception: as `CorpusCounter.count`.
        """
        tasks = self._tasks(folder, build)
        calls = ((part, f"count {part}", (part.number, [entry.absolute() for entry in part.entries])) for part in parts)
        for part, report in self._cluster.run(
            tasks, CountTasks.count_segment, calls, tasks.folder, lambda: self._sample(runner)
        ):
            self._add(report)
            self._counted[report.node] += part.weight
            yield part, report.value, report.node, report.process
            runner.spilled += report.value.spilled
            runner.done_bytes += part.weight
            runner.report_progress()

    def sum(self, segments: SegmentFolder, build: PipelineBuilder, runner: PipelineRunner) -> list[Shard]:
        """Return the sums of all partitions of all segments, without statistics. Raises as `count`."""
        tasks = self._tasks(segments.path, build)
        shards = segments.shards(tasks.folder)
        parts = max(self._cluster.slots, -(-sum(shard.size for shard in shards) // _TASK_BYTES))
        owned = owned_partitions(min(parts, PARTITIONS))
        shares = [[shard.select(partitions) for shard in shards] for partitions in owned]
        calls = ((number, f"sum {number + 1} of {len(shares)}", (share,)) for number, share in enumerate(shares))
        sums: dict[int, Shard] = {}
        with segments.kept_on_failure():
            for number, report in self._cluster.run(
                tasks, CountTasks.sum_partitions, calls, tasks.folder, lambda: self._sample(runner)
            ):
                sums[number] = report.value
                self._add(report)
                runner.spilled += report.value.spilled
                size = sum(shard.size for shard in shares[number])
                runner.reports = sum_reports(runner.reports, [_merger_report(number, report, size)])
        return [sums[number] for number in range(len(shares))]

    def report(self) -> EngineReport:
        """Return the part of a run's report that is about the cluster."""
        nodes = dict(sorted(self._nodes.items()))
        return EngineReport(kind="ray", tasks=sum(node.tasks for node in nodes.values()), nodes=nodes)

    def _tasks(self, folder: Path, build: PipelineBuilder) -> CountTasks:
        scratch_dir = build.settings.scratch_dir
        build = replace(
            build,
            settings=build.settings.model_copy(update={"scratch_dir": scratch_dir and scratch_dir.absolute()}),
            counters=self._threads if build.rules.scanner == "native" else 1,
            mergers=1,
            in_process=True,
            memory=self.memory,
            look=None,
        )
        return CountTasks(folder.absolute(), build)

    def _add(self, report: TaskReport) -> None:
        node = self._nodes.get(report.node, NodeReport(tasks=0, seconds=0, cpu_seconds=0, peak_memory_bytes=0))
        self._nodes[report.node] = NodeReport(
            tasks=node.tasks + 1,
            seconds=node.seconds + report.seconds,
            cpu_seconds=node.cpu_seconds + report.cpu_seconds,
            peak_memory_bytes=max(node.peak_memory_bytes, report.peak_memory),
        )

    def _sample(self, runner: PipelineRunner) -> None:
        """Pass on a sample, if one is due: all tasks, as counters, and those of each node, with average rates."""
        now = monotonic()
        if runner.on_sample is None or now - self._sampled < runner.sample_interval:
            return
        self._sampled, elapsed = now, now - self._began
        slots, in_flight = self._cluster.slots, self._cluster.in_flight
        running = min(in_flight, slots)

        def rate(tasks: int, counted: int, workers: int) -> StageRate:
            return StageRate(tasks / elapsed, counted / elapsed, tasks, counted, workers)

        stages = {"counter": rate(sum(node.tasks for node in self._nodes.values()), self._counted.total(), running)}
        for name, node in self._nodes.items():
            stages[f"node {name}"] = rate(node.tasks, self._counted[name], 1)
        runner.on_sample(
            MonitorSample(
                elapsed=elapsed,
                queues={"task_queue": QueueDepth(in_flight - running, 0)},
                stages=stages,
                processes=(),
                bounds={"task_queue": QueueDepth((PER_SLOT - 1) * slots, 0)},
            )
        )


def _merger_report(number: int, report: TaskReport, size: int) -> WorkerReport:
    return WorkerReport(
        stage="merger",
        worker=number,
        items_in=1,
        items_out=1,
        wall_seconds=report.seconds,
        cpu_seconds=report.cpu_seconds,
        weight_done=size,
        peak_memory=report.peak_memory,
    )
