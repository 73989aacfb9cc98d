"""A worker: one call of a stage function, which pulls its inputs and pushes its outputs; and the process around it."""

from __future__ import annotations

import os
import pickle
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from .channel import END, Channel, Packed, TruncatedError
from .descriptors import Credits, Descriptor
from .errors import Failure, FlowError
from .meters import Activity, Meter, Meters
from .spec import Source, Stage


class Inputs(Iterator[Any]):
    """The inputs of a stage function. An item is finished when the next one is requested.

    An object rather than a generator, so that a stage function cannot close it by accident.
    """

    def __init__(self, take: Callable[[], Any], weigh: Callable[[Any], int] | None, meter: Meter) -> None:
        self._take = take
        self._weigh = weigh
        self._meter = meter
        self._weight = 0

    def __next__(self) -> Any:
        """Return the next item."""
        self._meter.add_finished(self._weight)
        self._weight = 0
        item = self._take()
        if item is END:
            raise StopIteration
        if self._weigh:
            self._weight = self._weigh(item)
        return item


#: The meter of the worker that this thread runs.
_current = threading.local()


def set_gauge(value: int) -> None:
    """Show a number in samples of the pipeline, such as the size of a table. For stage functions, while they run.

    Outside of a stage function it does nothing.
    """
    if (meter := getattr(_current, "meter", None)) is not None:
        meter.set_gauge(value)


def run_stage(step: Source | Stage, take: Callable[[], Any], put: Callable[[Any], None], meter: Meter) -> None:
    """Call the function of a source, or that of a stage with its inputs, and put out what it yields.

    Raises `FlowError` if a stage function has not taken every item: nothing is dropped silently.
    """
    meter.set_activity(Activity.WORKING)
    if isinstance(step, Source):
        for item in step.function():
            put(item)
        return
    _current.meter = meter
    inputs = Inputs(take, step.weigh, meter)
    for item in step.function(inputs):
        put(item)
    for _ in inputs:
        raise FlowError(
            f"stage {step.name!r} returned before the end of its input: a stage function must take every item, "
            "including items that it does not use"
        )


# ---- worker processes ----


@dataclass(frozen=True)
class Plan:
    """Everything that the worker processes of a run need to know."""

    main_script: Callable[[], dict[str, Any]]  # runs it, for workers whose functions or items are defined in it
    stages: Sequence[str]  # the name of each step
    workers: Sequence[tuple[int, int]]  # of each worker, its step and its number within the step
    channels: Sequence[Channel]  # the queue that each step writes to
    meters: Meters
    failures: Descriptor  # a pipe for the first failure
    failure_lock: Credits  # held by the worker that reports it
    alive: Descriptor  # a pipe that reaches its end when the main process has died


def main(pickled: bytes, job: bytes, index: int) -> int:
    """Run the worker with this index in a plan. Returns its exit status.

    Args:
        pickled: The pickled plan.
        job: The pickled source or stage, and the `route` of the queue that it writes to.
        index: The index of the worker.
    """
    plan: Plan = pickle.loads(pickled)  # noqa: S301 -- from our own parent
    step, number = plan.workers[index]
    meter = plan.meters.steps[step][number]
    meter.begin(os.getpid())
    for other, channel in enumerate(plan.channels):
        if other != step:
            channel.close_writers()
    try:
        threading.Thread(target=_exit_after_parent, args=(plan.alive,), name="parent watch", daemon=True).start()
        sys.modules["__main__"] = sys.modules["__mp_main__"] = _MainModule(plan.main_script)
        stage, route = pickle.loads(job)  # noqa: S301
        take = partial(plan.channels[step - 1].get, number, meter)
        put = plan.channels[step].put
        run_stage(stage, take, lambda item: put(item, meter, route), meter)
        meter.end(time.process_time())
    except TruncatedError:
        signal.pause()  # the main process learns of the death that caused this, and ends this process
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # of any kind: it goes to the caller
        plan.failure_lock.take()
        with suppress(BrokenPipeError):  # the main process has died
            Packed.of(Failure.from_exception(plan.stages[step], number, error)).write(plan.failures)
        return 1
    return 0


def _exit_after_parent(alive: Descriptor) -> NoReturn:
    """Exit when the main process dies, even if this process is busy, or waits for a queue."""
    os.read(alive.fileno(), 1)
    os._exit(1)


# ---- the main script ----

#: Whether this process is importing the main script of its pipeline's main process.
_importing_main = False


class _MainModule(ModuleType):
    """Stands for `__main__` in a worker, and imports the main script when something in it is needed.

    So a plain script needs no guard. The script is run under another name: code under its guard does not run.
    """

    def __init__(self, script: Callable[[], dict[str, Any]]) -> None:
        super().__init__("__main__")
        vars(self)["__script__"] = script

    def __getattr__(self, name: str) -> Any:
        """Return a function or class of the main script. It is not run for names such as `__file__`."""
        global _importing_main
        if name.startswith("__") or "__script__" not in vars(self):
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        script = vars(self).pop("__script__")
        _importing_main = True
        vars(self).update(script())
        _importing_main = False
        return getattr(self, name)


def find_main_script() -> Callable[[], dict[str, Any]]:
    """Return a function that runs the main script of this process in a worker."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return partial(runpy.run_module, spec.name, run_name="__mp_main__", alter_sys=True)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).exists():
        return _no_main_script
    return partial(runpy.run_path, str(Path(file).absolute()), run_name="__mp_main__")


def _no_main_script() -> dict[str, Any]:
    raise FlowError(
        "a stage function is defined in __main__, which workers cannot import here (an interactive session, python -c, "
        "or standard input): move it to a module, or run the pipeline in threads"
    )


def check_not_importing_main() -> None:
    """Raise `FlowError` in a worker that imports a main script without a guard, which would start workers again."""
    if _importing_main:
        raise FlowError(
            "a pipeline was started while a worker was importing the main script. Put the code that starts it "
            'under\n    if __name__ == "__main__":\n'
            "or move the stage functions to a separate module"
        )
