"""Counting on a Ray cluster: tasks count the segments of a corpus and sum the counts of all.

    plan ─▶ tasks ─▶ shards in the run folder, a record of each ─▶ tasks that sum partitions ─▶ reducer

Tasks write files. Only the driver writes records and removes files, so an interrupted run resumes with the segments
recorded, on a cluster or on one machine.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any

from bpeflow.corpus.plan import SegmentPart
from bpeflow.corpus.sources import check_unchanged
from bpeflow.counting.cluster import OTHER_FILE_REMEDY, PER_SLOT, Cluster, Key, TaskReport, task_folder
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.pipelines import PipelineBuilder, PipelineRunner
from bpeflow.counting.report import EngineReport, NodeReport, combine_stages
from bpeflow.counting.segments import SegmentRecord, count_segment, write_segment
from bpeflow.counting.shards import PARTITIONS, Scratch, Shard, owned_partitions
from bpeflow.flow import MonitorSample, QueueDepth, StageRate, StageReport

#: The usual size of a segment, and the smallest. Small segments balance the load better and lose less work with a node;
#: large ones have fewer pre-tokens in common, so less is written and summed.
_SEGMENT, _MIN_SEGMENT = 1_000_000_000, 64_000_000

#: Several slots have up to this many segments each if these are at least that large, to balance the load.
_PER_SLOT, _WORTH_BALANCING = 4, 512_000_000

#: Bytes of shards that a task sums, if there are partitions enough. With more, there are fewer tasks to share the work.
#: With fewer, tasks take longer to start than to sum.
_TASK_BYTES = 128_000_000


@dataclass(frozen=True)
class CountTasks:
    """The functions of tasks, and what they need.

    Attributes:
        folder: the folder of segments, an absolute path.
        build: builds the pipeline that runs in a task.
    """

    folder: Path
    build: PipelineBuilder

    def count_segment(self, part: SegmentPart) -> SegmentRecord:
        """Count a part of the corpus.

        Raises:
            CorpusError: a file is unreadable, not the one that was found, or changed while it was counted.
            Exception: as `CorpusCounter.count`.
        """
        check_unchanged(part.entries, OTHER_FILE_REMEDY)
        path = self.folder / f"{part.number:06d}-{token_hex(8)}.shard"
        with task_folder(self._scratch_dir, "bpeflow") as scratch:
            runner = PipelineRunner(replace(self.build, scratch=Scratch(scratch)))
            return count_segment(path, part, runner)

    def sum_partitions(self, shards: Sequence[Shard]) -> Shard:
        """Sum some partitions of the shards of segments. Returns a shard in a file in the folder."""
        with task_folder(self._scratch_dir, "bpeflow") as scratch:
            sums = CountMerger(self.build.memory, Scratch(scratch))(shards)
            return write_segment(self.folder / f"sum-{token_hex(8)}.shard", sums)[0]

    @property
    def _scratch_dir(self) -> Path:
        return self.build.settings.scratch_dir or Path(tempfile.gettempdir())


class ClusterCounting:
    """Counts the segments of a corpus on a cluster, and sums them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: defaultdict[str, list[TaskReport]] = defaultdict(list)  # tasks that have ended, by node
        self._counted = 0  # bytes of input
        self._began = self._sampled = monotonic()

    def segment_size(self, total: int, wanted: int) -> int:
        """Return the size of a segment of a corpus of `total` bytes, at most `wanted`.

        The segments of a small corpus are as many for each slot, so that no slot waits for another.
        """
        slots = self._cluster.slots
        balanced = min(total // (slots * _WORTH_BALANCING), _PER_SLOT) if slots > 1 else 1
        per_slot = max(balanced, round(total / (slots * _SEGMENT)), 1)
        return min(wanted, max(-(-total // (slots * per_slot)), _MIN_SEGMENT))

    def in_tasks(self, build: PipelineBuilder) -> PipelineBuilder:
        """Return the builder of the pipelines that run in tasks."""
        scratch_dir, settings = build.settings.scratch_dir, self._cluster.settings
        return replace(
            build,
            settings=build.settings.model_copy(update={"scratch_dir": scratch_dir and scratch_dir.absolute()}),
            limit=int(settings.task_memory),
            counters=settings.cpus_per_task if build.rules.scanner == "native" else 1,
            mergers=1,
            executor="threads",
            look=None,
        )

    def count(self, parts: Iterator[SegmentPart], folder: Path, runner: PipelineRunner) -> Iterator[SegmentRecord]:
        """Count parts of the corpus as segments, as `SegmentFolder.count` has it. Progress goes to `runner`.

        Raises:
            EngineError: a node cannot take part, or the cluster is gone.
            TaskLostError: a task was lost too often.
            Exception: as `CorpusCounter.count`.
        """
        calls = ((None, f"count {part}", (part.absolute(),)) for part in parts)
        for _, report in self._run(CountTasks.count_segment, calls, folder, runner):
            record: SegmentRecord = report.value
            self._counted += record.weight
            yield record
            runner.done_bytes += record.weight
            runner.report_progress()

    def sum(self, shards: Sequence[Shard], folder: Path, runner: PipelineRunner) -> list[Shard]:
        """Return the sums of all partitions of the shards in the folder. Raises as `count`."""
        size = sum(shard.size for shard in shards)
        owned = owned_partitions(min(size // _TASK_BYTES + 1, PARTITIONS))
        shares = [[shard.select(partitions) for shard in shards] for partitions in owned]
        calls = ((number, f"sum {number + 1} of {len(shares)}", (share,)) for number, share in enumerate(shares))
        reports = dict(self._run(CountTasks.sum_partitions, calls, folder, runner))
        for task in reports.values():
            merger = StageReport(
                workers=1,
                items_in=1,
                items_out=1,
                seconds=task.seconds,
                cpu_seconds=task.cpu_seconds,
                peak_memory_bytes=task.peak_memory,
                bytes=size // len(shares),
            )
            runner.stages = combine_stages([runner.stages, {"merger": merger}])
        return [reports[number].value for number in range(len(shares))]

    def _run(
        self,
        function: Callable[..., Any],
        calls: Iterable[tuple[Key, str, tuple[Any, ...]]],
        folder: Path,
        runner: PipelineRunner,
    ) -> Iterator[tuple[Key, TaskReport]]:
        """Call a method of `CountTasks` in tasks, and add up the work of each node."""
        folder = folder.absolute()
        tasks = CountTasks(folder, self.in_tasks(runner.build))
        for key, report in self._cluster.run(tasks, function, calls, folder, lambda: self._sample(runner)):
            self._nodes[report.node].append(report)
            yield key, report

    def report(self) -> EngineReport:
        """Return the part of a run's report that is about the cluster."""
        nodes = {
            name: NodeReport(
                tasks=len(tasks),
                seconds=sum(task.seconds for task in tasks),
                cpu_seconds=sum(task.cpu_seconds for task in tasks),
                peak_memory_bytes=max(task.peak_memory for task in tasks),
            )
            for name, tasks in sorted(self._nodes.items())
        }
        return EngineReport(kind="ray", tasks=sum(map(len, self._nodes.values())), nodes=nodes)

    def _sample(self, runner: PipelineRunner) -> None:
        """Pass on a sample, if one is due: all tasks as counters, with average rates."""
        now = monotonic()
        if runner.on_sample is None or now - self._sampled < runner.sample_interval:
            return
        self._sampled, elapsed = now, now - self._began
        slots, in_flight = self._cluster.slots, self._cluster.in_flight
        running, tasks = min(in_flight, slots), sum(map(len, self._nodes.values()))
        runner.on_sample(
            MonitorSample(
                elapsed=elapsed,
                queues={"task_queue": QueueDepth(in_flight - running, 0)},
                stages={"counter": StageRate(tasks / elapsed, self._counted / elapsed, tasks, self._counted, running)},
                processes=(),
                bounds={"task_queue": QueueDepth((PER_SLOT - 1) * slots, 0)},
            )
        )
