"""A pipeline: built from its parts, run once, looked at from any thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import resource_tracker
from typing import Any

from .diagnostics import cannot_begin
from .errors import FlowError
from .inline import run_inline
from .launch import Launcher, interrupts_held, pickle_job, start_context, terminal_signals_blocked
from .messages import WorkerReport
from .meters import Activity, QueueDepth, depth, local_meters, shared_meters
from .pool import Pool
from .spec import QueueSpec, Source, Stage, check_names

Results = Generator[Any, None, None]
_DEFAULT_RESULTS = QueueSpec("results")

#: What the calling process is named where stages are.
MAIN = "main"


@dataclass(frozen=True)
class StageTotals:
    """What the workers of a stage have done so far; ``weight_done`` is that of finished inputs, by ``Stage.weigh``."""

    items_in: int
    items_out: int
    weight_done: int
    workers_alive: int


@dataclass(frozen=True)
class WorkerState:
    """What a process that runs is doing, and for how many seconds. The main process is stage "main"."""

    stage: str
    worker: int
    pid: int
    activity: Activity
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """The state of a pipeline at one moment: queues and stages by name, in their order (the source among them).

    ``workers``: the processes that run, and last the calling one, as long as any does.
    """

    queues: Mapping[str, QueueDepth]
    stages: Mapping[str, StageTotals]
    workers: Sequence[WorkerState]

    @property
    def pids(self) -> dict[tuple[str, int], int]:
        """The processes that run, by stage and worker number."""
        return {(state.stage, state.worker): state.pid for state in self.workers if state.stage != MAIN}


class Pipeline:
    """A source and stages, joined by bounded queues; the results come out in the calling process.

    ``results``: the queue between the last stage and the caller.
    ``start_method``: "forkserver" (or "spawn" where that does not exist), "spawn" or "fork"; see `launch`.
    ``preload``: modules that the fork server imports once, so that workers need not.
    ``temporary``: folders that workers remove if the main process is killed; in every other case the caller does.

    Raises FlowError for parts that do not fit together. A pipeline runs once.
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

        Workers start with its first ``next``. When it ends in whatever way (exhausted, closed, collected, an exception,
        Ctrl-C) they are gone. ``inline=True`` runs everything in the calling process instead, one worker to a stage.

        Raises what a stage function raised, with the worker's traceback as its cause; `WorkerDiedError` if a worker process
        died; FlowError if the pipeline has run before or a stage function cannot be pickled.
        """
        if self._started:
            raise FlowError("this pipeline has run already: build another one")
        self._started = True
        if inline:
            return self._run_inline()
        jobs = self._pickle_jobs()
        return self._run_in_processes(Launcher(self._context, jobs, self._preload), jobs)

    @property
    def reports(self) -> list[WorkerReport]:
        """What each worker did and took, in the order of stages and workers: complete after a run that succeeded."""
        return self._reports

    def snapshot(self) -> Snapshot:
        """Return queue depths, totals and process ids. Cheap and lock-free: for any thread, at any time."""
        pids = self._pids()
        queues = {
            queue.name: depth(producers, consumers)
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
        return Snapshot(queues, stages, self._workers(pids) if pids else ())

    def _workers(self, pids: Mapping[tuple[str, int], int]) -> list[WorkerState]:
        meters = dict(zip((*self._names, MAIN), self._meters, strict=True))
        places = {**pids, (MAIN, 0): os.getpid()}
        rows = [(place, pid, meters[place[0]][place[1]]) for place, pid in places.items()]
        noted = [(place, pid, meter.activity, meter.since) for place, pid, meter in rows]
        now = time.monotonic()  # after all of them were read, so that nothing has yet to happen
        return [WorkerState(*place, pid, activity, now - since) for place, pid, activity, since in noted]

    def _run_inline(self) -> Results:
        pids = {(name, 0): os.getpid() for name in self._names}
        self._pids = lambda: pids
        try:
            yield from run_inline(self._source, self._stages, [meter for [meter] in self._meters], self._reports)
        finally:
            self._pids = dict

    def _run_in_processes(self, launcher: Launcher, jobs: Sequence[bytes]) -> Results:
        # Not with interrupts held: it may start the process that looks after shared memory, which lets them loose.
        try:
            with terminal_signals_blocked():
                if self._context.get_start_method() != "fork":  # before the first semaphore: it would stay without it
                    resource_tracker.ensure_running()
                self._meters = shared_meters(self._context, [1, *(stage.workers for stage in self._stages), 1])
                pool = Pool(self._context, launcher, self._names, jobs, self._queues, self._meters, self._temporary)
        except OSError as error:
            raise cannot_begin(error) from error
        self._pids = lambda: pool.pids
        try:
            with interrupts_held():
                pool.start()
            yield from pool.results()
        finally:
            with interrupts_held():
                self._reports = pool.end()
            self._pids = dict

    def _pickle_jobs(self) -> list[bytes]:
        stations: tuple[Source | Stage, ...] = (self._source, *self._stages)
        return [pickle_job(station, writes) for station, writes in zip(stations, self._queues, strict=True)]
