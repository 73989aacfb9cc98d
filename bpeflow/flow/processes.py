"""The executor that runs each worker of a pipeline in a process.

How a run ends
==============

The calling thread does everything: it waits for results and for the fork server, which reports the exit of each worker.
There is no other thread and no polling.

**End of stream.** A worker that has put out its last item exits. When all workers of a stage have exited, the next
stage reads end of file. The run has succeeded when the results are at their end, every worker has finished its work and
exited with status 0, and as many items have been taken from each queue as were put on it.

**Failure.** The first failure ends the run. A worker that raises writes the exception to a file without a name, and
exits. So the exit of a worker is looked at after that file: an exception takes precedence over a death noticed at the
same time. Retrying in place is never sound: a process killed while it holds a lock of a queue keeps it. So all workers
are killed (with SIGKILL: a worker owns nothing that needs a clean exit) before the failure is raised.

**Early end.** `break`, an exception in the caller's loop, Ctrl-C, or garbage collection of the generator: the workers
are killed as well.

**Death of the main process.** Each worker has a thread that notices it, as the end of a pipe, and exits. So has the
fork server. It kills the workers that native code keeps from that, removes the temporary folders and exits. The death
of the fork server is a failure like any other.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .channel import Channel
from .descriptors import Credits, Descriptor, anonymous_file, pipe
from .errors import FlowError, cannot_start, server_died, unpack_failure, worker_died
from .forkserver import EVENT, Plan, interpreter
from .main_script import check_not_running, find_main_script
from .spec import QueueSpec, Source, Stage
from .worker import Inputs

if TYPE_CHECKING:
    from .pipeline import Pipeline

#: Upper bound on the wait for killed processes, in seconds. They end at once, unless they are stuck in the kernel (for
#: example in a dead network file system). Longer delays the error in that case.
_END_SECONDS = 5.0


class ProcessRun:
    """One run of a pipeline in processes. Raises `FlowError` if a stage function cannot be pickled."""

    def __init__(self, pipeline: Pipeline) -> None:
        check_not_running()
        self._pipeline = pipeline
        self._meters = pipeline.meters
        steps: list[Source | Stage] = [pipeline.source, *pipeline.stages]
        self._jobs = [_pickle_job(step, output) for step, output in zip(steps, pipeline.queues, strict=True)]
        self._workers = [
            (step, number) for step, meters in enumerate(self._meters.steps[:-1]) for number in range(len(meters))
        ]
        self._running = len(self._workers)
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None

    def results(self) -> Generator[Any, None, None]:
        """Start the workers and yield the results. Raises the first failure. No process is left at the end."""
        [meter] = self._meters.steps[-1]
        meter.begin(os.getpid())
        try:
            self._start()
            yield from Inputs(partial(self._channels[-1].get, 0, meter, self._wait_for_result), None, meter)
            while self._running:
                self._handle_exit()
            for step, queue in enumerate(self._pipeline.queues):
                if lost := self._meters.depth(step).items:
                    raise FlowError(f"queue {queue.name!r}: {lost} items were lost between processes")
        finally:
            self._end()

    def _start(self) -> None:
        try:
            workers = [len(meters) for meters in self._meters.steps]
            # Kept, with the reading ends of all queues: a worker must not notice the death of another before this
            # process does, and report an error that is only a consequence.
            self._channels = list(map(Channel, self._pipeline.queues, workers, workers[1:]))
            self._failure = anonymous_file()
            self._events, events = pipe()
            alive, self._alive = pipe()
            plan = Plan(
                fork=self._pipeline.start_method == "forkserver",
                preload=self._pipeline.preload,
                temporary=self._pipeline.temporary,
                main_script=find_main_script(),
                stages=self._pipeline.names,
                jobs=self._jobs,
                workers=self._workers,
                channels=self._channels,
                meters=self._meters,
                failure=self._failure,
                failure_lock=Credits(1),
                events=events,
                alive=alive,
            )
            self._start_server(plan)
        except OSError as error:
            raise cannot_start(error) from error
        for channel in self._channels:
            channel.close_writers()
        self._poll = select.poll()
        self._poll.register(self._channels[-1].reader(0), select.POLLIN)
        self._poll.register(self._events, select.POLLIN)

    def _start_server(self, plan: Plan) -> None:
        """Start the fork server, which inherits a file with the plan, and the descriptors in it."""
        inherited = [(file := anonymous_file()).fileno()]

        def inherit(descriptor: Descriptor) -> tuple[Any, ...]:
            inherited.append(descriptor.fileno())
            return Descriptor, (descriptor.fileno(),)

        with open(file.fileno(), "wb", closefd=False) as stream:
            pickler = pickle.Pickler(stream)
            pickler.dispatch_table = {Descriptor: inherit}
            pickler.dump(plan)
        self._server = subprocess.Popen(
            interpreter(f"serve({file.fileno()})"),
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

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
            raise server_died()
        index, pid, status = EVENT.unpack(event)
        if not pid:
            raise cannot_start(OSError(status, os.strerror(status)))
        step, number = self._workers[index]
        meters = self._meters.steps[step]
        if status or not meters[number].finished:
            reported = os.pread(self._failure.fileno(), os.fstat(self._failure.fileno()).st_size, 0)
            raise unpack_failure(
                reported, otherwise=worker_died(self._pipeline.names[step], number, len(meters), pid, status)
            )
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


def _pickle_job(step: Source | Stage, output: QueueSpec) -> bytes:
    """Pickle what the workers of a step call. Raises `FlowError` if that is not possible."""
    try:
        return pickle.dumps((step, output.route))
    except Exception as error:
        raise FlowError(
            f"stage {step.name!r} cannot be sent to its workers: {error}: define its functions at module level, or run "
            "the pipeline in threads"
        ) from error
