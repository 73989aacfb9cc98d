"""The pipeline: built from its parts, run once, and observable from any thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from .errors import FlowError
from .shared import Meter, Meters, QueueDepth
from .stage import QueueSpec, Source, Stage
from .threads import ThreadRun

Executor = Literal["processes", "threads"]
_DEFAULT_RESULTS = QueueSpec("results")

#: The stage name of the calling process.
MAIN = "main"


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """The work of a stage, of all its workers.

    Attributes:
        seconds: Wall time from the stage's start to its end, waiting included.
        cpu_seconds: Processor time of its processes or threads. A source in threads shares that of the caller.
        peak_memory_bytes: The greatest of its processes.
        bytes: The amount of work, as given by `Stage.weigh`.
        mb_per_second: The rate, filled in by whoever publishes the report.
    """

    workers: int
    items_in: int | None = None
    items_out: int | None = None
    seconds: float
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    bytes: int
    mb_per_second: float | None = None


class Snapshot(NamedTuple):
    """The state of a pipeline at one moment, by the names of queues and stages, from the source to "main"."""

    queues: Mapping[str, QueueDepth]
    meters: Mapping[str, Sequence[Meter]]
    time: int  # of the clock `time.monotonic_ns`

    def running(self) -> list[tuple[str, int, Meter]]:
        """Return the stage, number and meter of each running worker, which may be a thread of the main process."""
        workers = [(stage, *worker) for stage, meters in self.meters.items() for worker in enumerate(meters)]
        return [(stage, number, meter) for stage, number, meter in workers if meter.pid]

    def total(self, stage: str, counter: str) -> int:
        """Return the sum of a counter, by name, of all workers of a stage."""
        return sum(getattr(meter, counter) for meter in self.meters[stage])

    def seconds(self, stage: str) -> list[float]:
        """Return the seconds that all workers of a stage have spent in each `Activity`."""
        return [sum(spent) for spent in zip(*(meter.spent(self.time) for meter in self.meters[stage]), strict=True)]


@dataclass(eq=False)
class Pipeline:
    """A source and stages, connected by bounded queues. The results arrive in the calling process.

    A pipeline runs once.

    Attributes:
        source: Produces the items.
        stages: The stages, in order.
        results: The queue between the last stage and the caller.
        temporary: Folders that are removed if the main process is killed. In every other case the caller removes them.

    Raises:
        FlowError: If the parts do not fit together.
    """

    source: Source
    stages: Sequence[Stage]
    results: QueueSpec = _DEFAULT_RESULTS
    temporary: Sequence[str | os.PathLike[str]] = ()

    def __post_init__(self) -> None:
        self.steps: list[Source | Stage] = [self.source, *self.stages]
        self.names = [step.name for step in self.steps]
        self.queues = [*(stage.reads for stage in self.stages), self.results]
        self.meters = Meters([1, *(stage.workers for stage in self.stages), 1])
        self._executor: Executor | None = None
        for kind, names in (("stages", self.names), ("queues", [queue.name for queue in self.queues])):
            if duplicates := {name for name in names if names.count(name) > 1}:
                raise FlowError(f"two {kind} have the same name: {', '.join(sorted(duplicates))}")
        if self.results.route is not None:
            raise FlowError(f"queue {self.results.name!r}: results cannot be routed to one caller")

    def run(self, executor: Executor = "processes") -> Generator[Any, None, None]:
        """Return a generator of the results, in the order in which they become ready.

        The first `next` starts the workers. They are gone when the generator ends, however it ends: exhausted, closed,
        garbage-collected, by an exception or by Ctrl-C.

        Args:
            executor: `"processes"`, or `"threads"` of the calling process, in which the source runs in the calling
                thread. Threads suit small inputs, and functions that release the interpreter lock.

        Raises:
            FlowError: If the pipeline has already run, or workers cannot import a stage function.
            WorkerDiedError: From the generator, if a worker process dies.
            Exception: From the generator, the exception of a stage function; from a process, with the worker's
                traceback as its cause.
        """
        if self._executor is not None:
            raise FlowError("this pipeline has already run: build a new one")
        if executor not in get_args(Executor):
            raise FlowError(f"executor {executor!r} is not one of {', '.join(get_args(Executor))}")
        self._executor = executor
        if executor == "threads":
            return ThreadRun(self.steps, self.queues, self.meters).results()
        from .processes import ProcessRun  # multiprocessing, subprocess and more, which threads do not need

        return ProcessRun(self.steps, self.queues, self.meters, self.temporary).results()

    @property
    def reports(self) -> dict[str, StageReport]:
        """The report of each stage, in order, after a successful run."""
        return {
            stage: StageReport(
                workers=len(meters),
                items_in=sum(meter.items_in for meter in meters),
                items_out=sum(meter.items_out for meter in meters),
                seconds=max(sum(meter.spent(meter.since)) for meter in meters),
                cpu_seconds=sum(meter.cpu for meter in meters) / 1e9,
                peak_memory_bytes=max(meter.peak_memory for meter in meters),
                bytes=sum(meter.weight_done for meter in meters),
            )
            for stage, meters in zip(self.names, self.meters.steps, strict=False)  # without those of the caller
        }

    def snapshot(self) -> Snapshot:
        """Return queue depths, totals and the states of workers. Cheap and lock-free, from any thread at any time."""
        queues = {queue.name: self.meters.depth(step) for step, queue in enumerate(self.queues)}
        copies = [list(map(Meter.from_buffer_copy, meters)) for meters in self.meters.steps]
        # The time last, so that no activity starts in the future.
        return Snapshot(queues, dict(zip((*self.names, MAIN), copies, strict=True)), time.monotonic_ns())


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(results: Iterable[Result], number: Callable[[Result], int]) -> Iterator[Result]:
    """Restore the order of results, given the function that returns the number of each, from 0.

    Results that come too early wait in memory. If the numbers also route the items to the workers (`QueueSpec.route`),
    at most as many wait as the queues hold: a worker that lags behind stops the source.
    """
    early: dict[int, Result] = {}
    next_number = 0
    for result in results:
        early[number(result)] = result
        while next_number in early:
            yield early.pop(next_number)
            next_number += 1


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """Yield the result of a function for each item, in the order of the items, from this many threads.

    Neither items nor results are pickled. Unlike a `ThreadPoolExecutor` it ends whenever Ctrl-C interrupts it.
    """
    results: dict[int, Result] = {}

    def work(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            results[number] = function(items[number])
            yield number

    stage = Stage("function", work, QueueSpec("items"), threads)
    for number in in_order(Pipeline(Source("source", partial(range, len(items))), [stage]).run("threads"), int):
        yield results.pop(number)
