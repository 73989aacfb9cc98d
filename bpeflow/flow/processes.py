"""The executor that runs each worker of a pipeline in a process.

How a run ends
==============

The calling thread does everything: it waits for results and for the fork server, which reports the exit of each worker.
There is no other thread and no polling.

**End of stream.** A worker that has put out its last item exits. When all workers of a stage have exited, the next
stage reads end of file. The run has succeeded when the results are at their end, every worker has finished its work and
exited with status 0, and as many items have been taken from each queue as were put on it.

**Failure.** The first failure ends the run. A worker that raises writes the exception to a file without a name, and
exits, so an exception takes precedence over a death noticed at the same time. Retrying in place is never sound: a
process killed while it holds a lock of a queue keeps it. So all workers are killed (with SIGKILL: a worker owns nothing
that needs a clean exit) before the failure is raised.

**Early end.** After `break`, an exception in the caller's loop, Ctrl-C, or garbage collection of the generator, the
workers are killed as well.

**Death of the main process.** Each worker has a thread that notices it, as the end of a pipe, and exits. So has the
fork server, which kills the workers that native code keeps from that, and removes the temporary folders. Its own death
is a failure like any other.

The fork server
===============

A process with threads cannot safely fork, and starting an interpreter for each worker takes long. So a run starts one
clean process, which imports what the workers need and forks them. (That of `multiprocessing` has a socket with a name,
which stays behind if the main process is killed, imports the main script into every worker, and needs a second process
that tracks semaphores.) The server and the workers inherit the descriptors of the whole run. They are a session and a
process group of their own: a Ctrl-C in the terminal, or closing it, concerns only the main process, which can kill all
of them at once.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from mmap import mmap
from multiprocessing import spawn
from types import FunctionType
from typing import Any, NoReturn

from .errors import KILLED, FlowError, WorkerDiedError, WorkerTracebackError, cannot_start, worker_died
from .pipes import Channel
from .shared import (
    Descriptor,
    Meters,
    anonymous_file,
    made_here,
    open_here,
    owned,
    pipe,
    uninterrupted,
    write_all,
)
from .stage import Inputs, QueueSpec, Source, Stage, outputs

#: Upper bound on the wait for killed processes, in seconds. They end at once, unless they are stuck in the kernel (for
#: example in a dead network file system). Longer delays the error in that case.
_END_SECONDS = 5.0

#: To the main process, for each worker that has ended: its index, process id and exit code. If it could not be started:
#: its index, 0 and an error number.
EVENT = struct.Struct("<qqq")


@dataclass
class Plan:
    """Everything that the server and the workers of a run need to know, and what they share with the main process."""

    names: list[str]  # of the steps: the source and the stages
    jobs: list[bytes]  # of each step, the pickled source or stage, and the `route` of the queue that it writes to
    channels: list[Channel]  # the queue that each step writes to
    meters: Meters
    temporary: Sequence[str | os.PathLike[str]]
    events: Descriptor  # the pipe to the main process
    alive: Descriptor  # a pipe that reaches its end when the main process has died
    # For failures, of which the first counts. Each is written at once, and so after the one before.
    failure: Descriptor = field(default_factory=anonymous_file)


class ProcessRun:
    """One run of a pipeline in processes. Raises `FlowError` if workers cannot import a stage function."""

    def __init__(
        self,
        steps: Sequence[Source | Stage],
        queues: Sequence[QueueSpec],
        meters: Meters,
        temporary: Sequence[str | os.PathLike[str]],
    ) -> None:
        self._names = [step.name for step in steps]
        self._queues = queues
        self._meters = meters
        self._temporary = temporary
        self._jobs: list[bytes] = []
        for step, queue in zip(steps, queues, strict=True):
            try:
                _JobPickler(job := io.BytesIO()).dump((step, queue.route))
            except Exception as error:
                raise FlowError(
                    f"stage {step.name!r} cannot be sent to its workers: {error}: define its functions in a module "
                    "that they can import, or run the pipeline in threads"
                ) from error
            self._jobs.append(job.getvalue())
        self._running = len(self._meters.workers)
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None

    def results(self) -> Generator[Any, None, None]:
        """Start the workers and yield the results. Raises the first failure. No process is left at the end."""
        [meter] = self._meters.steps[-1]
        meter.begin()
        try:
            self._start()
            yield from Inputs(partial(self._channels[-1].get, 0, meter, self._wait_for_result), None, meter)
            while self._running:
                self._handle_exit()
            for step, queue in enumerate(self._queues):
                if lost := self._meters.depth(step).items:
                    raise FlowError(f"queue {queue.name!r}: {lost} items were lost between processes")
        finally:
            self._end()

    def _start(self) -> None:
        """Create the queues, and start the fork server, which inherits a file with the plan and its descriptors."""
        inherited: list[int] = []

        def inherit(descriptor: Descriptor) -> tuple[Any, ...]:
            inherited.append(descriptor.fileno())
            return owned, (int, descriptor.fileno())

        try:
            self._events, events = pipe()
            alive, self._alive = pipe()
            workers = [len(meters) for meters in self._meters.steps]
            channels = list(map(Channel, self._queues, workers, workers[1:]))
            plan = Plan(self._names, self._jobs, channels, self._meters, self._temporary, events, alive)
            self._failure = plan.failure
            # Kept, with the reading ends of all queues: a worker must not notice the death of another before this
            # process does, and report an error that is only a consequence.
            self._channels = channels
            file = anonymous_file()
            with open(file.fileno(), "wb", closefd=False) as stream:
                pickler = pickle.Pickler(stream)
                pickler.dispatch_table = {Descriptor: inherit}
                pickler.dump(plan)

            def start() -> None:
                self._server = subprocess.Popen(
                    server_command(file.fileno()),
                    pass_fds=[file.fileno(), *inherited],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )

            uninterrupted(start)  # within `Popen`, Ctrl-C would leave pipes or a process
        except OSError as error:
            raise cannot_start(error) from error
        for channel in self._channels:
            channel.close_writers()
        self._poll = select.poll()
        self._poll.register(self._channels[-1].reader(0), select.POLLIN)
        self._poll.register(self._events, select.POLLIN)

    def _wait_for_result(self) -> None:
        """Wait until there is something to read from the results queue, maybe its end. Raises the first failure."""
        results = self._channels[-1].reader(0).fileno()
        ready: set[int] = set()
        while self._running and results not in ready:
            ready = {number for number, _ in self._poll.poll()}
            if self._events.fileno() in ready:
                self._handle_exit()

    def _handle_exit(self) -> None:
        """Wait until a worker has exited. Raises the exception that a worker has reported, or that for its death."""
        event = os.read(self._events.fileno(), EVENT.size)
        if not event:
            raise WorkerDiedError(
                "the process that starts the workers (the fork server) was killed, so the workers were ended as well: "
                f"{KILLED}"
            )
        index, pid, status = EVENT.unpack(event)
        if not pid:
            raise cannot_start(OSError(status, os.strerror(status)))
        step, number = self._meters.workers[index]
        meters = self._meters.steps[step]
        if status or not meters[number].finished:
            reported = os.pread(self._failure.fileno(), os.fstat(self._failure.fileno()).st_size, 0)
            raise unpack_failure(reported) or worker_died(self._names[step], number, len(meters), pid, status)
        self._running -= 1

    def _end(self) -> None:
        """Kill the server and its workers, and wait until none is left."""
        if os.getpid() != self._owner:  # a copy of this object in a child that other code has forked
            return
        if self._server:
            # Even if it has died, its process id names the group of the workers until it is waited for.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            readers = select.poll()
            readers.register(self._alive, 0)  # an error, when no process has the other end open
            readers.poll(1000 * _END_SECONDS)
            for descriptor in (self._alive, self._failure, self._events):
                descriptor.close()
        self._meters.clear()
        self._channels = []


class _JobPickler(pickle.Pickler):
    """Refuses functions and classes of the main script, which workers do not import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the main script (__main__)")
        return NotImplemented


# ---- in the fork server and in the workers ----


#: Loads a job, from our own parent: once, in the server, for all workers that it forks.
_load = cache(pickle.loads)


def server_command(file: int) -> list[str]:
    """Return the command that runs `serve` in an interpreter with this one's options, path and arguments."""
    command = spawn.get_command_line()
    setup = f"import sys; sys.path[:] = {[*map(str, sys.path)]}; sys.argv[:] = {sys.argv}"
    serve = f"from bpeflow.flow import processes; processes.serve({file})"
    return [*command[: command.index("-c")], "-c", f"{setup}; {serve}"]


def serve(file: int) -> NoReturn:
    """Run the server, given the file with its plan."""
    plan: Plan = pickle.loads(mmap(file, 0))  # noqa: S301 -- from our own parent

    def report(index: int, pid: int, status: int) -> None:
        with suppress(BrokenPipeError):  # the main process has died
            os.write(plan.events.fileno(), EVENT.pack(index, pid, status))

    for job in plan.jobs:  # which imports what the workers need
        with suppress(Exception):  # a worker will report the error
            _load(job)
    made, inherited = made_here.copy(), open_here()
    made_here.clear()  # the workers do not close them
    running: dict[int, int] = {}
    for index in range(len(plan.meters.workers)):
        try:
            pid = os.fork()
        except OSError as error:
            report(index, 0, error.errno or 0)
            break
        if not pid:
            made_here.update(made)
            _work(plan, index)
        running[pid] = index
    for descriptor in inherited:
        if descriptor not in (plan.events, plan.alive):
            descriptor.close()

    def kill_workers() -> None:  # one in native code may be unable to notice by itself that the main process has died
        for pid in list(running):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    _after_main(plan.alive, kill_workers)
    while running:
        pid, status = os.wait()
        if (index := running.pop(pid, -1)) >= 0:  # not a child of an imported module
            report(index, pid, os.waitstatus_to_exitcode(status))
    if select.select([plan.alive], [], [], 0)[0]:  # the main process has died, and so the workers have ended
        for folder in plan.temporary:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _after_main(alive: Descriptor, action: Callable[[], object]) -> None:
    """Start a thread that does something when the main process has died."""

    def wait() -> None:
        os.read(alive.fileno(), 1)
        action()

    threading.Thread(target=wait, name="parent watch", daemon=True).start()


def _work(plan: Plan, index: int) -> NoReturn:
    """Run the worker with this index in this process, and exit."""
    step, number = plan.meters.workers[index]
    meter = plan.meters.steps[step][number]
    meter.begin()
    for descriptor in open_here():
        os.set_inheritable(descriptor.fileno(), False)  # by processes that the stage function starts
    plan.events.close()
    for other, channel in enumerate(plan.channels):
        if other != step:
            channel.close_writers()
    status = 1
    try:
        _after_main(plan.alive, partial(os._exit, 1))
        stage, route = _load(plan.jobs[step])
        take = partial(plan.channels[step - 1].get, number, meter)  # which a source does not call
        for packed, consumer in outputs(stage, route, meter, take):
            plan.channels[step].put(packed, consumer, meter)
        meter.end(time.process_time())
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # of any kind: it goes to the caller
        try:
            write_all(plan.failure, pack_failure(plan.names[step], number, error))
        except OSError:  # a file size limit
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


# ---- how an exception gets out of a worker ----


def pack_failure(stage: str, worker: int, error: BaseException) -> bytes:
    """Pickle the exception that a worker handles, or what to raise instead if it cannot be pickled or loaded."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # it cannot be pickled, or has an unusual `__init__`
        raised = "".join(traceback.format_exception_only(error)).strip()
        error = FlowError(
            f"stage {stage!r}, worker {worker}, raised {raised} (this exception cannot be pickled; its traceback is "
            "above)"
        )
    return pickle.dumps((error, (stage, worker, traceback.format_exc())))


def unpack_failure(packed: bytes) -> BaseException | None:
    """Return a packed exception, whose cause is the worker's traceback; None if `packed` is only a part of it."""
    error: BaseException
    try:
        error, origin = pickle.loads(packed)  # noqa: S301 -- from our own worker
    except (EOFError, pickle.UnpicklingError):
        return None
    error.__cause__ = WorkerTracebackError(*origin)
    return error
