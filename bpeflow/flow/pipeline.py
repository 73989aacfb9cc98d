"""The pipeline: built from its parts, run once, and observable from any thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import resource_tracker
from typing import Any

from .diagnostics import cannot_create_queues
from .errors import FlowError
from .inline import run_inline
from .launch import Launcher, pickle_job, signals_deferred, start_context, terminal_signals_blocked
from .messages import WorkerReport
from .meters import Activity, QueueDepth, local_meters, queue_depth, shared_meters
from .pool import Pool
from .spec import QueueSpec, Source, Stage, check_names

Results = Generator[Any, None, None]
_DEFAULT_RESULTS = QueueSpec("results")

#: The stage name of the calling process.
MAIN = "main"


@dataclass(frozen=True)
class StageTotals:
    """Totals of all workers of a stage so far.

    Attributes:
        items_in: Items taken.
        items_out: Items put.
        weight_done: Total weight of the finished inputs, as given by `Stage.weigh`.
        workers_alive: Workers that are running.
    """

    items_in: int
    items_out: int
    weight_done: int
    workers_alive: int


@dataclass(frozen=True)
class WorkerState:
    """The current activity of a running process, and its duration in seconds. The main process is stage "main"."""

    stage: str
    worker: int
    pid: int
    activity: Activity
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """The state of a pipeline at one moment.

    Attributes:
        queues: Queue depths by queue name, in pipeline order.
        stages: Totals by stage name, in pipeline order, starting with the source.
        workers: The running workers and, last, the calling process. Empty when no worker runs.
    """

    queues: Mapping[str, QueueDepth]
    stages: Mapping[str, StageTotals]
    workers: Sequence[WorkerState]

    @property
    def pids(self) -> dict[tuple[str, int], int]:
        """The running workers, by stage and worker number."""
        return {(state.stage, state.worker): state.pid for state in self.workers if state.stage != MAIN}


class Pipeline:
    """A source and stages, connected by bounded queues. The results arrive in the calling process.

    A pipeline runs once.

    Args:
        source: Produces the items.
        stages: The stages, in order.
        results: The queue between the last stage and the caller.
        start_method: `"forkserver"` (or `"spawn"` where that does not exist), `"spawn"` or `"fork"`; see `launch`.
        preload: Modules that the fork server imports once, so that workers need not.
        temporary: Folders that workers remove if the main process is killed. In every other case the caller removes
            them.

    Raises:
        FlowError: If the parts do not fit together.
    """

    def __init__(
        self,
        source: Source,
        stages: Sequence[Stage],
        results: QueueSpec = _DEFAULT_RESULTS,
        start_method: str = "forkserver",
        preload: Sequence[str] = (),
        temporary: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        check_names(source, stages, results)
        self._source = source
        self._stages = tuple(stages)
        self._names = (source.name, *(stage.name for stage in stages))
        self._queues = (*(stage.reads for stage in stages), results)
        self._context = start_context(start_method)
        self._preload = tuple(preload)
        self._temporary = tuple(os.fspath(folder) for folder in temporary)
        self._started = False
        self._meters = local_meters([1] * (len(self._names) + 1))
        self._pids: Callable[[], Mapping[tuple[str, int], int]] = dict
        self._reports: list[WorkerReport] = []

    def run(self, *, inline: bool = False) -> Results:
        """Return a generator of the results, in the order in which they become ready.

        The first `next` starts the workers. They are gone when the generator ends, however it ends: exhausted, closed,
        garbage-collected, by an exception or by Ctrl-C.

        Args:
            inline: Run everything in the calling process instead, with one worker per stage.

        Raises:
            FlowError: If the pipeline has already run, or a stage function cannot be pickled.
            WorkerDiedError: From the generator, if a worker process dies.
            Exception: From the generator, the exception of a stage function, with the worker's traceback as its cause.
        """
        if self._started:
            raise FlowError("this pipeline has already run: build a new one")
        self._started = True
        if inline:
            return self._run_inline()
        jobs = self._pickle_jobs()
        return self._run_in_processes(Launcher(self._context, jobs, self._preload), jobs)

    @property
    def reports(self) -> list[WorkerReport]:
        """The report of each worker, in the order of stages and workers. Complete after a successful run."""
        return self._reports

    def snapshot(self) -> Snapshot:
        """Return queue depths, totals and process ids. Cheap and lock-free, from any thread at any time."""
        pids = self._pids()
        queues = {
            queue.name: queue_depth(producers, consumers)
            for queue, (producers, consumers) in zip(self._queues, pairwise(self._meters), strict=True)
        }
        stages = {
            name: StageTotals(
                items_in=sum(meter.items_in for meter in meters),
                items_out=sum(meter.items_out for meter in meters),
                weight_done=sum(meter.weight_done for meter in meters),
                workers_alive=sum(stage == name for stage, _ in pids),
            )
            for name, meters in zip(self._names, self._meters, strict=False)
        }
        return Snapshot(queues, stages, self._worker_states(pids) if pids else ())

    def _worker_states(self, pids: Mapping[tuple[str, int], int]) -> list[WorkerState]:
        meters = dict(zip((*self._names, MAIN), self._meters, strict=True))
        readings = []
        for (stage, worker), pid in {**pids, (MAIN, 0): os.getpid()}.items():
            meter = meters[stage][worker]
            readings.append((stage, worker, pid, meter.activity, meter.since))
        now = time.monotonic()  # after all meters were read, so that no activity starts in the future
        return [
            WorkerState(stage, worker, pid, activity, now - since) for stage, worker, pid, activity, since in readings
        ]

    def _run_inline(self) -> Results:
        pids = {(name, 0): os.getpid() for name in self._names}
        self._pids = lambda: pids
        try:
            yield from run_inline(self._source, self._stages, [meter for [meter] in self._meters], self._reports)
        finally:
            self._pids = dict

    def _run_in_processes(self, launcher: Launcher, jobs: Sequence[bytes]) -> Results:
        # Not with `signals_deferred`: this may start multiprocessing's resource tracker, which unblocks SIGINT.
        try:
            with terminal_signals_blocked():
                if self._context.get_start_method() != "fork":
                    # Before the first semaphore: if the tracker could not start, the semaphore would be left behind.
                    resource_tracker.ensure_running()
                self._meters = shared_meters(self._context, [1, *(stage.workers for stage in self._stages), 1])
                pool = Pool(self._context, launcher, self._names, jobs, self._queues, self._meters, self._temporary)
        except OSError as error:
            raise cannot_create_queues(error) from error
        self._pids = lambda: pool.pids
        try:
            with signals_deferred():
                pool.start()
            yield from pool.results()
        finally:
            with signals_deferred():
                self._reports = pool.shut_down()
            self._pids = dict

    def _pickle_jobs(self) -> list[bytes]:
        steps: tuple[Source | Stage, ...] = (self._source, *self._stages)
        return [pickle_job(step, output) for step, output in zip(steps, self._queues, strict=True)]
