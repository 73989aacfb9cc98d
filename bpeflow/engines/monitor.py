"""`TaskMonitor`: samples of the tasks on an engine, in the form of those of a pipeline."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from bpeflow.counting.pipeline import PipelineRunner
from bpeflow.engines.base import Engine
from bpeflow.engines.coordinator import PER_SLOT, Coordinator
from bpeflow.flow import MonitorSample, QueueDepth, StageRate


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
