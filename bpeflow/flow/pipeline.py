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


@dataclass(frozen=True)
class WorkerReport:
    """The work of a worker that has finished, and the resources that it used."""

    stage: str
    worker: int  # within its stage, from 0
    items_in: int
    items_out: int
    wall_seconds: float
    cpu_seconds: float  # of its process, or of its thread; a source in threads shares that of the caller
    weight_done: int  # of its inputs, as given by `Stage.weigh`
    peak_memory: int  # of its process, in bytes


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
        preload: Modules that the fork server, from which the workers are forked, imports once so that they need not.
        temporary: Folders that are removed if the main process is killed. In every other case the caller removes them.

    Raises:
        FlowError: If the parts do not fit together.
    """

    source: Source
    stages: Sequence[Stage]
    results: QueueSpec = _DEFAULT_RESULTS
    preload: Sequence[str] = ()
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

        return ProcessRun(self.steps, self.queues, self.meters, self.preload, self.temporary).results()

    @property
    def reports(self) -> list[WorkerReport]:
        """The report of each worker, in the order of stages and workers. Complete after a successful run."""
        return [
            WorkerReport(
                stage=stage,
                worker=worker,
                items_in=meter.items_in,
                items_out=meter.items_out,
                wall_seconds=sum(meter.spent(meter.since)),
                cpu_seconds=meter.cpu / 1e9,
                weight_done=meter.weight_done,
                peak_memory=meter.peak_memory,
            )
            for stage, meters in zip(self.names, self.meters.steps, strict=False)  # without those of the caller
            for worker, meter in enumerate(meters)
            if meter.finished
        ]

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
