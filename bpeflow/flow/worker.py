"""A worker: one call of a stage function, which pulls its inputs and pushes its outputs."""

from __future__ import annotations

import os
import pickle
import runpy
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

from .channel import END, Receiver, Sender, TruncatedError
from .descriptors import Descriptor, write_all
from .errors import FlowError
from .messages import Failure, WorkerReport, peak_memory
from .meters import Activity, Meter, Meters
from .spec import SourceFunction, StageFunction

#: The exit status of a worker whose parent has died. No process reads it, but in a post-mortem it differs from a crash.
PARENT_GONE_STATUS = 75

_REPORT_HEADER = struct.Struct("<Q")  # the length of the pickle that follows


@dataclass(frozen=True)
class Job:
    """The user's functions for the workers of a step."""

    function: SourceFunction | StageFunction
    weigh: Callable[[Any], int] | None
    route: Callable[[Any], int] | None


class Inputs(Iterator[Any]):
    """The inputs of a stage function. An item is finished when the next one is requested.

    An object rather than a generator, so that a stage function cannot close it by accident.

    Args:
        take: Returns the next item, or `END`.
        weigh: That of the `Stage`.
        meter: The worker's meter.
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
        item = END if self._ended else self._take()
        if item is END:
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


def run_stage(name: str, job: Job, take: Callable[[], Any] | None, put: Callable[[Any], None], meter: Meter) -> None:
    """Call a stage function with its inputs, or the source's without, and put out what it yields."""
    if take is None:
        for item in job.function():  # type: ignore[call-arg]
            put(item)
        return
    inputs = Inputs(take, job.weigh, meter)
    for item in job.function(inputs):  # type: ignore[call-arg]
        put(item)
    inputs.check_exhausted(name)


def make_report(name: str, worker: int, meter: Meter, wall_seconds: float, cpu_seconds: float) -> WorkerReport:
    """Return the report of a worker that has ended."""
    return WorkerReport(
        stage=name,
        worker=worker,
        items_in=meter.items_in,
        items_out=meter.items_out,
        wall_seconds=wall_seconds,
        cpu_seconds=cpu_seconds,
        weight_done=meter.weight_done,
        peak_memory=peak_memory(),
    )


# ---- worker processes ----


@dataclass(frozen=True)
class MainScript:
    """The script that the main process runs, for workers whose functions are defined in it.

    Attributes:
        module: Its name, if it was run with `python -m`.
        path: Its file otherwise.
    """

    module: str | None
    path: str | None


@dataclass(frozen=True)
class WorkerContext:
    """Everything that a worker process needs to know.

    Attributes:
        stage: Name of its stage.
        worker: Its number within the stage, from 0.
        job: The pickled `Job`.
        receiver: Its end of the queue that it reads, or None for the source.
        sender: Its end of the queue that it writes to.
        meters: The meters of the pipeline.
        step: The number of its step, from 0 for the source.
        reports: The pipe on which it reports its end.
        alive: A pipe that reaches its end when the main process has died.
        main_script: What to import before the job is loaded, if anything.
    """

    stage: str
    worker: int
    job: bytes
    receiver: Receiver | None
    sender: Sender
    meters: Meters
    step: int
    reports: Descriptor
    alive: Descriptor
    main_script: MainScript | None


#: Whether this process is importing the main script of its pipeline's main process.
_importing_main = False


def check_not_importing_main() -> None:
    """Raise `FlowError` in a worker that imports a main script without a guard, which would start workers again."""
    if _importing_main:
        raise FlowError(
            "a pipeline was started while a worker was importing the main script. Put the code that starts it "
            'under\n    if __name__ == "__main__":\n'
            "or move the stage functions to a separate module"
        )


def main(pickled: bytes) -> int:
    """Run a worker from its setup to its report, given its pickled context. Returns its exit status."""
    context: WorkerContext = pickle.loads(pickled)  # noqa: S301 -- from our own parent
    start = time.perf_counter()
    try:
        threading.Thread(target=_exit_after_parent, args=(context.alive,), name="parent watch", daemon=True).start()
        meter = context.meters.meter(context.step, context.worker)
        meter.set_activity(Activity.WORKING)
        _run_job(context, meter)
        seconds = time.perf_counter() - start
        _report(context, make_report(context.stage, context.worker, meter, seconds, time.process_time()))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # of any kind: it goes to the caller
        _report(context, Failure.from_exception(context.stage, context.worker, error))
        return 1
    return 0


def _run_job(context: WorkerContext, meter: Meter) -> None:
    if context.main_script is not None:
        _import_main(context.main_script)
    job: Job = pickle.loads(context.job)  # noqa: S301 -- from our own parent
    take = None if context.receiver is None else partial(_take, context.receiver, meter)
    run_stage(context.stage, job, take, lambda item: context.sender.put(item, meter, job.route), meter)


def _take(receiver: Receiver, meter: Meter) -> Any:
    try:
        return receiver.get(meter)
    except TruncatedError:
        while True:
            signal.pause()  # the main process learns of the death that caused this, and ends this process


def _import_main(script: MainScript) -> None:
    """Import the main script under another name, so that code under its guard does not run, and make it `__main__`."""
    global _importing_main
    main_module = ModuleType("__mp_main__")
    _importing_main = True
    if script.module is not None:
        content = runpy.run_module(script.module, run_name="__mp_main__", alter_sys=True)
    else:
        content = runpy.run_path(script.path or "", run_name="__mp_main__")
    _importing_main = False
    vars(main_module).update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main_module


def _report(context: WorkerContext, message: WorkerReport | Failure) -> None:
    pickled = pickle.dumps(message)
    try:
        write_all(context.reports, [_REPORT_HEADER.pack(len(pickled)), pickled])
    except BrokenPipeError:  # the main process has died
        os._exit(PARENT_GONE_STATUS)


def complete_report(received: bytes) -> bytes:
    """Return the pickled message of a worker from what has been read of its pipe, or b"" while that is incomplete."""
    pickled = received[_REPORT_HEADER.size :]
    complete = pickled and len(pickled) == _REPORT_HEADER.unpack_from(received)[0]
    return pickled if complete else b""


def _exit_after_parent(alive: Descriptor) -> NoReturn:
    """Exit when the main process dies, even if this process is busy, or waits for a queue."""
    os.read(alive.fileno(), 1)
    os._exit(PARENT_GONE_STATUS)
