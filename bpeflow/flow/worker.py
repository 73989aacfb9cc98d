"""The code of a worker process: one call of a stage function, which pulls its inputs and pushes its outputs.

Everything here follows the shutdown protocol described in `supervisor`.
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
from .diagnostics import OUT_OF_MEMORY_ERRORS, OUT_OF_MEMORY_STATUS
from .errors import FlowError
from .messages import Failure, Stop, WorkerReport
from .meters import Activity, Meter
from .spec import SourceFunction, StageFunction
from .thread_starts import bound_thread_starts
from .usage import peak_memory

#: The exit status of a worker whose parent has died. No process reads it, but in a post-mortem it differs from a crash.
PARENT_GONE_STATUS = 75


@dataclass(frozen=True)
class Job:
    """The user's functions for a worker: pickled once per stage, and loaded in the worker once that is set up."""

    function: SourceFunction | StageFunction
    weigh: Callable[[Any], int] | None
    route: Route | None


@dataclass(frozen=True)
class WorkerContext:
    """Everything that a worker needs to know of its pipeline.

    Attributes:
        stage: Name of its stage.
        worker: Its number within the stage, from 0.
        job: The pickled `Job`.
        input_channel: The channel that it reads, or None for the source.
        output_channel: The channel that it writes to.
        meter: Its counters.
        reports: The pipe on which it reports its end.
        temporary: Folders that it removes if the main process, which otherwise does so, has died.
    """

    stage: str
    worker: int
    job: bytes
    input_channel: Channel | None
    output_channel: Channel
    meter: Meter
    reports: Connection
    temporary: tuple[str, ...] = ()


def run_worker(context: WorkerContext) -> None:
    """Run a worker from its setup to its report: the target of every worker process."""
    _ignore_ctrl_c()
    bound_thread_starts()
    try:
        _start_parent_watch(context)
        context.meter.set_activity(Activity.WORKING)
        report = _run_job(context)
    except SystemExit:
        context.output_channel.discard_unsent()
        raise
    except BaseException as error:  # of any kind: it goes to the caller
        context.output_channel.discard_unsent()
        try:
            _send(Failure.from_exception(context.stage, context.worker, error), context)
        except OUT_OF_MEMORY_ERRORS:
            os._exit(OUT_OF_MEMORY_STATUS)
        sys.exit(1)
    _send(report, context)


def _send(message: WorkerReport | Failure, context: WorkerContext) -> None:
    try:
        context.reports.send(message)
    except BrokenPipeError:  # the parent has died; its death can show here before the parent watch wakes up
        _exit_after_parent(context)


def _run_job(context: WorkerContext) -> WorkerReport:
    start = time.perf_counter()
    job: Job = pickle.loads(context.job)  # noqa: S301 -- from our own parent
    for item in _outputs(context, job):
        context.output_channel.put(item, context.meter, job.route)
    context.output_channel.flush(context.meter)
    return WorkerReport(
        stage=context.stage,
        worker=context.worker,
        items_in=context.meter.items_in,
        items_out=context.meter.items_out,
        wall_seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time(),
        weight_done=context.meter.weight_done,
        peak_memory=peak_memory(),
    )


def _outputs(context: WorkerContext, job: Job) -> Iterator[Any]:
    channel = context.input_channel
    if channel is None:
        yield from job.function()  # type: ignore[call-arg]
        return
    inputs = Inputs(lambda: channel.get(context.worker, context.meter), job.weigh, context.meter)
    yield from job.function(inputs)  # type: ignore[call-arg]
    inputs.check_exhausted(context.stage)


class Inputs(Iterator[Any]):
    """The inputs of a stage function. Takes items until `Stop`; an item is finished when the next one is requested.

    An object rather than a generator, so that a stage function cannot close it by accident.
    """

    def __init__(self, take: Callable[[], Any], weigh: Callable[[Any], int] | None, meter: Meter) -> None:
        self._take = take
        self._weigh = weigh
        self._meter = meter
        self._current_weight = 0
        self._ended = False

    def __next__(self) -> Any:
        """Return the next item."""
        self._meter.add_finished(self._current_weight)
        self._current_weight = 0
        item = Stop() if self._ended else self._take()
        if isinstance(item, Stop):
            self._ended = True
            raise StopIteration
        if self._weigh:
            self._current_weight = self._weigh(item)
        return item

    def check_exhausted(self, stage: str) -> None:
        """Raise `FlowError` unless the stage function has taken every item: nothing is dropped silently."""
        for _ in self:
            raise FlowError(
                f"stage {stage!r} returned before the end of its input: a stage function must take every item, "
                "including items that it does not use"
            )


def _ignore_ctrl_c() -> None:
    """Ignore SIGINT, which a terminal sends to every process of its foreground group, and then unblock it.

    Only the main process handles Ctrl-C. Workers start with SIGINT blocked (see `launch`), so it cannot hit them before
    it is ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _start_parent_watch(context: WorkerContext) -> None:
    """Start a thread that exits this process when the main process dies, even if it is blocked in a queue or busy."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"  # noqa: S101 -- for the type checker

    def watch() -> None:
        wait([parent.sentinel])
        _exit_after_parent(context)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def _exit_after_parent(context: WorkerContext) -> NoReturn:
    """Remove the temporary folders, which only the main process would have removed, and exit.

    Every worker does so, because others may still be writing to the folders: the last worker removes the rest.
    """
    for folder in () if context.meter.cleanup_disabled else context.temporary:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(PARENT_GONE_STATUS)
