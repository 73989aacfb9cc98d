"""Counting on an engine: segments become tasks, and so do the ranges of their sum.

    plan ─▶ tasks, at most two per slot ─▶ shards in the run folder, a record of each ─▶ range sums ─▶ reducer

Tasks write files, and return what a record says about them. Only this process writes records and removes files, so
everything that holds for the folder of segments holds for any engine: a run that was interrupted, in whichever way,
resumes with the segments recorded, on any engine. `TaskMonitor` samples the tasks as a pipeline samples its stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from bpeflow._util.atomic import make_folder
from bpeflow.config import EngineSettings
from bpeflow.corpus.sources import with_absolute_paths
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.manifest import SegmentRecord
from bpeflow.counting.pipelines import PipelineRunner, sum_reports
from bpeflow.counting.plan import SegmentPart
from bpeflow.counting.report import EngineReport, NodeReport
from bpeflow.counting.segments import SegmentFolder, worker_reports
from bpeflow.counting.shards import PARTITIONS, Shard, owned_partitions
from bpeflow.counting.work import OTHER_FILE_REMEDY, CountWork, SumHere
from bpeflow.engines.coordinator import PER_SLOT, Coordinator, Tally, start_engine
from bpeflow.engines.engine import Call, Engine, TaskReport
from bpeflow.engines.probe import check_nodes
from bpeflow.flow import MonitorSample, QueueDepth, StageRate, WorkerReport

#: The usual size of a segment, and the smallest. Small segments balance the load better and lose less work with a node;
#: large ones have fewer pre-tokens in common, so less is written and summed.
_SEGMENT, _MIN_SEGMENT = 1_000_000_000, 64_000_000

#: Several slots have up to this many segments each if these are at least that large, to balance the load.
_PER_SLOT, _WORTH_BALANCING = 4, 512_000_000

#: Bytes of all shards in a range, at most.
_RANGE_BYTES = 512_000_000

#: Bytes of all shards up to which the driver sums them itself, in less time than tasks take to begin and write files.
_SMALL_SUM = 128_000_000


@contextmanager
def distributing(settings: EngineSettings) -> Iterator[DistributedCounting]:
    """Yield who distributes the counting. All tasks end with the block.

    Raises:
        EngineUnavailableError: the engine's library is not installed.
        EngineError: the cluster cannot be reached.
    """
    engine = start_engine(settings)
    try:
        yield DistributedCounting(engine, settings)
    finally:
        engine.stop()


class DistributedCounting:
    """Counts the segments of a corpus on an engine: a `Distributor`.

    Attributes:
        settings: the settings of the engine.
        threads: the number of threads of a task.
        memory: the shares of a task's memory limit.
    """

    def __init__(self, engine: Engine, settings: EngineSettings) -> None:
        """Prepare to count on an engine, which the caller stops."""
        self.settings = settings
        self.threads = settings.cpus_per_task
        self.memory = MemoryBudget.share(int(settings.task_memory), self.threads, 1)
        self._engine = engine
        self._coordinator = Coordinator(engine, self.threads, int(settings.task_memory), settings.retries)

    @property
    def tally(self) -> Tally:
        """The work so far."""
        return self._coordinator.tally

    def report(self) -> EngineReport:
        """Return what the engine has done so far."""
        nodes = {
            name: NodeReport(
                tasks=node.tasks,
                seconds=node.seconds,
                cpu_seconds=node.cpu_seconds,
                peak_memory_bytes=node.peak_memory,
            )
            for name, node in sorted(self.tally.nodes.items())
        }
        return EngineReport(kind=self.settings.kind, tasks=self.tally.tasks, attempts=self.tally.attempts, nodes=nodes)

    def segment_size(self, total: int, wanted: int) -> int:
        """Return the size of a segment of a corpus of `total` bytes, at most `wanted`.

        The segments of a small corpus are as many for each slot, so that no slot waits for another.
        """
        slots = max(self._engine.slots, 1)
        balanced = min(total // (slots * _WORTH_BALANCING), _PER_SLOT) if slots > 1 else 1
        per_slot = max(balanced, round(total / (slots * _SEGMENT)), 1)
        return min(wanted, max(-(-total // (slots * per_slot)), _MIN_SEGMENT))

    def count(self, segments: SegmentFolder, work: CountWork, runner: PipelineRunner, sum_here: SumHere) -> list[Shard]:
        """Count the segments that are missing, and sum all.

        Raises:
            EngineError: a node cannot take part, or the cluster is gone.
            TaskLostError: a task was lost too often.
            Exception: as `CorpusCounter.count`.
        """
        make_folder(work.folder)
        entries = [with_absolute_paths(entry) for entry in segments.entries]
        check_nodes(self._engine, work.folder, entries, OTHER_FILE_REMEDY)
        monitor = TaskMonitor(self._coordinator, self._engine, runner)
        with segments.kept_on_failure():
            segments.open(lambda records: self._verify(records, work))
            runner.done_bytes += segments.resumed_weight
            runner.report_progress()
            self._count_missing(segments, work, runner, monitor)
            runner.reports = worker_reports(segments.counted)
            shards = segments.shards(work.folder)
            if self.settings.partitions is None and sum(shard.size for shard in shards) <= _SMALL_SUM:
                return sum_here(shards)
            return self._sum(shards, work, runner, monitor)

    def _verify(self, records: Sequence[SegmentRecord], work: CountWork) -> list[bool]:
        calls = (Call(f"verify segment {record.number}", work.is_intact, (record,)) for record in records)
        intact = {index: report.value for index, report in self._coordinator.run(calls)}
        return [intact[index] for index in range(len(records))]

    def _count_missing(
        self, segments: SegmentFolder, work: CountWork, runner: PipelineRunner, monitor: TaskMonitor
    ) -> None:
        in_flight: dict[int, SegmentPart] = {}

        def calls() -> Iterator[Call]:
            for index, part in enumerate(segments.missing()):
                in_flight[index] = part
                entries = [with_absolute_paths(entry) for entry in part.entries]
                yield Call(f"count {part}", work.count_segment, (part.number, entries))

        for index, report in self._coordinator.run(calls(), monitor.sample):
            part = in_flight.pop(index)
            segments.add(part, report.value, report.node, report.process)
            monitor.add(report.node, part.weight)
            runner.spilled += report.value.spilled
            runner.done_bytes += part.weight
            runner.report_progress()

    def _sum(
        self, shards: Sequence[Shard], work: CountWork, runner: PipelineRunner, monitor: TaskMonitor
    ) -> list[Shard]:
        size = sum(shard.size for shard in shards)
        parts = self.settings.partitions or max(self._engine.slots, -(-size // _RANGE_BYTES))
        tasks = [[shard.select(own) for shard in shards] for own in owned_partitions(min(parts, PARTITIONS))]
        calls = (
            Call(f"sum part {number} of {len(tasks)}", work.sum_partitions, (task,))
            for number, task in enumerate(tasks, 1)
        )
        sums: dict[int, Shard] = {}
        processes: dict[tuple[str, int], int] = {}
        for index, report in self._coordinator.run(calls, monitor.sample):
            sums[index] = report.value
            runner.spilled += report.value.spilled
            worker = processes.setdefault((report.node, report.process), len(processes))
            runner.reports = sum_reports(
                runner.reports, [_merger_report(worker, report, sum(shard.size for shard in tasks[index]))]
            )
        return [sums[index] for index in range(len(tasks))]


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


class TaskMonitor:
    """Samples the tasks that count, at the interval of a runner.

    The stages of a sample are the plan, whose items are attempts; all counting tasks together; and those of each node.
    """

    def __init__(self, coordinator: Coordinator, engine: Engine, runner: PipelineRunner) -> None:
        """Begin now.

        Args:
            coordinator: runs the tasks.
            engine: the engine that it uses.
            runner: receives the samples.
        """
        self._coordinator = coordinator
        self._engine = engine
        self._runner = runner
        self._began = self._last = monotonic()
        self._done: Counter[str] = Counter()  # bytes of input, by node
        self._before: dict[str, tuple[int, int]] = {}

    def add(self, node: str, size: int) -> None:
        """Note that a node has counted a part of the input."""
        self._done[node] += size

    def sample(self) -> None:
        """Pass on a sample, if one is due."""
        now = monotonic()
        if self._runner.on_sample is None or now - self._last < self._runner.sample_interval:
            return
        tally, slots, seconds = self._coordinator.tally, self._engine.slots, now - self._last
        running = min(tally.in_flight, slots)
        stages = {
            "segment plan": self._rate("segment plan", tally.attempts, 0, 1, seconds),
            "counter": self._rate("counter", tally.tasks, self._done.total(), running, seconds),
        }
        for node, work in tally.nodes.items():
            stages[f"node {node}"] = self._rate(f"node {node}", work.tasks, self._done[node], 1, seconds)
        self._last = now
        self._runner.on_sample(
            MonitorSample(
                elapsed=now - self._began,
                queues={"task_queue": QueueDepth(tally.in_flight - running, 0)},
                stages=stages,
                processes=(),
                bounds={"task_queue": QueueDepth((PER_SLOT - 1) * slots, 0)},
            )
        )

    def _rate(self, stage: str, items: int, weight: int, workers: int, seconds: float) -> StageRate:
        items_before, weight_before = self._before.get(stage, (0, 0))
        self._before[stage] = items, weight
        return StageRate((items - items_before) / seconds, (weight - weight_before) / seconds, items, weight, workers)
