"""What runs inside a worker process: one call of a stage function, its inputs pulled and its outputs pushed.

Everything here keeps the shutdown protocol that `supervisor` states.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from .channel import Channel, Route
from .diagnostics import NO_MEMORY, NO_MEMORY_TO_REPORT
from .errors import FlowError
from .messages import Failure, Stop, WorkerReport
from .meters import Activity, Meter
from .spec import SourceFunction, StageFunction
from .thread_starts import bound_thread_starts
from .usage import peak_memory

PARENT_GONE_STATUS = 75  # nobody is left to read it; it tells a post-mortem from a crash


@dataclass(frozen=True)
class Job:
    """The user's part of a worker: what is pickled once per stage, and loaded in the worker after its first acts."""

    function: SourceFunction | StageFunction
    weigh: Callable[[Any], int] | None
    route: Route | None


@dataclass(frozen=True)
class WorkerContext:
    """The place of one worker in its pipeline: who it is, what it reads, writes and reports to.

    ``temporary``: folders that it removes when the main process, which would do so, is dead.
    """

    stage: str
    worker: int
    job: bytes
    inlet: Channel | None
    outlet: Channel
    meter: Meter
    reports: Connection
    temporary: tuple[str, ...] = ()


def work(post: WorkerContext) -> None:
    """Run a worker from its first act to its report: the target of every worker process."""
    _leave_ctrl_c_to_the_main_process()
    bound_thread_starts()
    try:
        _follow_parent_into_death(post)
        post.meter.turn_to(Activity.WORKING)
        report = _run_job(post)
    except SystemExit:
        post.outlet.abandon()
        raise
    except BaseException as error:  # whatever it is, it belongs to the caller
        post.outlet.abandon()
        try:
            _send(Failure.from_exception(post.stage, post.worker, error), post)
        except NO_MEMORY:
            os._exit(NO_MEMORY_TO_REPORT)
        sys.exit(1)
    _send(report, post)


def _send(message: WorkerReport | Failure, post: WorkerContext) -> None:
    try:
        post.reports.send(message)
    except BrokenPipeError:  # which may be known before the parent watch is awake
        _end_without_parent(post)


def _run_job(post: WorkerContext) -> WorkerReport:
    begin = time.perf_counter()
    job: Job = pickle.loads(post.job)
    for item in _outputs(post, job):
        post.outlet.put(item, post.meter, job.route)
    post.outlet.flush(post.meter)
    return WorkerReport(
        stage=post.stage,
        worker=post.worker,
        items_in=post.meter.items_in,
        items_out=post.meter.items_out,
        wall_seconds=time.perf_counter() - begin,
        cpu_seconds=time.process_time(),
        weight_done=post.meter.weight_done,
        peak_memory=peak_memory(),
    )


def _outputs(post: WorkerContext, job: Job) -> Iterator[Any]:
    inlet = post.inlet
    if inlet is None:
        yield from job.function()  # type: ignore[call-arg]
        return
    inputs = Inputs(lambda: inlet.get(post.worker, post.meter), job.weigh, post.meter)
    yield from job.function(inputs)  # type: ignore[call-arg]
    inputs.check_exhausted(post.stage)


class Inputs(Iterator[Any]):
    """The inputs of one stage function: takes items until `Stop`, and counts each as finished when the next is asked.

    An object rather than a generator, so that a stage function cannot close it by accident.
    """

    def __init__(self, take: Callable[[], Any], weigh: Callable[[Any], int] | None, meter: Meter) -> None:
        self._take = take
        self._weigh = weigh
        self._meter = meter
        self._weight_in_hand = 0
        self._ended = False

    def __next__(self) -> Any:
        """Return the next item."""
        self._meter.finish(self._weight_in_hand)
        self._weight_in_hand = 0
        item = Stop() if self._ended else self._take()
        if isinstance(item, Stop):
            self._ended = True
            raise StopIteration
        if self._weigh:
            self._weight_in_hand = self._weigh(item)
        return item

    def check_exhausted(self, stage: str) -> None:
        """Raise unless the stage function has taken everything: nothing is dropped in silence."""
        for _ in self:
            raise FlowError(
                f"stage {stage!r} returned before the end of its input: a stage function must take every item, "
                "also those it has no use for"
            )


def _leave_ctrl_c_to_the_main_process() -> None:
    """Ignore SIGINT, which a terminal sends to every process of its foreground group; then unblock it.

    Workers start with SIGINT blocked (see `launch`), so there is no moment at which it could hit them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _follow_parent_into_death(post: WorkerContext) -> None:
    """Exit at once when the main process is gone, even if this one is blocked in a queue or busy."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def watch() -> None:
        wait([parent.sentinel])
        _end_without_parent(post)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def _end_without_parent(post: WorkerContext) -> NoReturn:
    """Remove what the main process alone would have removed, and exit.

    All workers do so, so that the last one removes what others have written meanwhile.
    """
    for folder in () if post.meter.dismissed else post.temporary:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(PARENT_GONE_STATUS)
