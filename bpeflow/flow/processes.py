"""The executor that runs each worker of a pipeline in a process.

How a run ends
==============

The calling thread does everything: it waits for results, for the report of each worker (on a pipe of its own), and for
the fork server, which reports the exit of each worker. There is no other thread and no polling.

**End of stream.** A worker that has put out its last item exits. When all workers of a stage have exited, the next
stage reads end of file. The run has succeeded when the results are at their end, every worker has sent a report and
exited with status 0, and as many items have been taken from each queue as were put on it.

**Failure.** The first failure ends the run. An exception that was reported takes precedence over a death noticed at the
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
import selectors
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any

from .channel import END, Channel, Receiver, TruncatedError
from .descriptors import Descriptor, pipe
from .errors import FlowError, cannot_start, server_died, worker_died
from .forkserver import NOT_STARTED, STARTED, ForkServer
from .messages import Failure, WorkerReport
from .meters import Meters
from .spec import QueueSpec, Source, Stage
from .worker import Job, MainScript, WorkerContext, check_not_importing_main, complete_report

#: Upper bound on the wait for killed processes, in seconds. They end at once, unless they are stuck in the kernel (for
#: example in a dead network file system). Longer delays the error in that case.
_END_SECONDS = 5.0


@dataclass(eq=False)
class _Worker:
    """A worker, as the main process sees it. Its process id is 0 before it has started."""

    stage: str
    number: int
    of: int
    reports: Descriptor
    pid: int = 0
    received: bytes = b""
    report: WorkerReport | None = None


class ProcessRun:
    """One run of a pipeline in processes.

    Args:
        steps: The source and the stages.
        queues: The queues that they write to.
        meters: The meters of the pipeline.
        start_method: `"forkserver"` or `"spawn"`.
        preload: Modules that the fork server imports once, so that workers need not.
        temporary: Folders to remove if the main process is killed.

    Raises:
        FlowError: A stage function cannot be pickled, or cannot be imported by workers.
    """

    def __init__(
        self,
        steps: Sequence[Source | Stage],
        queues: Sequence[QueueSpec],
        meters: Meters,
        start_method: str,
        preload: Sequence[str],
        temporary: Sequence[str],
    ) -> None:
        check_not_importing_main()
        self._steps = steps
        self._queues = queues
        self._meters = meters
        self._start_method = start_method
        self._preload = preload
        self._temporary = temporary
        self._jobs = [_pickle_job(step, output) for step, output in zip(steps, queues, strict=True)]
        self._main_script = _main_script() if any(refers_to_main for _, refers_to_main in self._jobs) else None
        self._owner = os.getpid()
        self._server: ForkServer | None = None
        self._channels: list[Channel] = []
        self._alive: Descriptor | None = None
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._running: set[_Worker] = set()
        self.pids: Mapping[tuple[str, int], int] = {}

    @property
    def reports(self) -> list[WorkerReport]:
        """The reports received so far, in the order of steps and workers."""
        return [worker.report for worker in self._workers if worker.report]

    def results(self) -> Generator[Any, None, None]:
        """Start the workers and yield the results. Raises the first failure. No process is left at the end."""
        try:
            yield from self._receive(self._start())
        finally:
            self._end()

    # ---- start and end ----

    def _start(self) -> Receiver:
        """Start the workers and return the receiver of the results."""
        self._meters.start()
        try:
            # Kept, with the reading ends of all queues: a worker must not notice the death of another before this
            # process does, and report an error that is only a consequence.
            self._channels = [Channel.open(queue, self._meters, step) for step, queue in enumerate(self._queues)]
            alive, self._alive = pipe()
            contexts = []
            for step in range(len(self._steps)):
                receivers = self._channels[step - 1].receivers if step else [None]
                for number, receiver in enumerate(receivers):
                    contexts.append(self._add_worker(step, number, len(receivers), receiver, alive))
            fork = self._start_method == "forkserver"
            self._server = ForkServer(contexts, fork, self._preload, self._temporary)
        except OSError as error:
            raise cannot_start(error) from error
        for channel in self._channels:
            channel.close_writers()
        for context in contexts:
            context.reports.close()
        [results] = self._channels[-1].receivers
        self._selector.register(self._server, selectors.EVENT_READ, self._server)
        for worker in self._workers:
            self._selector.register(worker.reports, selectors.EVENT_READ, worker)
        while not all(worker.pid for worker in self._workers):
            self._handle_events()
        self._selector.register(results.lane, selectors.EVENT_READ)
        return replace(results, wait=self._wait_for_results)

    def _add_worker(
        self, step: int, number: int, of: int, receiver: Receiver | None, alive: Descriptor
    ) -> WorkerContext:
        stage = self._steps[step].name
        reports, writer = pipe()
        os.set_blocking(reports.fileno(), False)
        worker = _Worker(stage, number, of, reports)
        self._workers.append(worker)
        self._running.add(worker)
        return WorkerContext(
            stage=stage,
            worker=number,
            job=self._jobs[step][0],
            receiver=receiver,
            sender=self._channels[step].sender,
            meters=self._meters,
            step=step,
            reports=writer,
            alive=alive,
            main_script=self._main_script,
        )

    def _end(self) -> None:
        """Kill the workers that are still running, and wait until none is left."""
        if os.getpid() != self._owner:  # a copy of this object in a child that other code has forked
            return
        if self._server is not None:
            self._server.kill()
            deadline = time.monotonic() + _END_SECONDS
            while not all(map(self._drain, self._running)) and time.monotonic() < deadline:
                time.sleep(0.001)
        for worker in self._workers:
            worker.reports.close()
        self._running.clear()
        self._publish_pids()
        self._selector.close()
        self._channels, self._alive = [], None

    # ---- while it runs ----

    def _receive(self, receiver: Receiver) -> Iterator[Any]:
        meter = self._meters.meter(len(self._steps), 0)
        try:
            while (item := receiver.get(meter)) is not END:
                yield item
        except TruncatedError:  # its writer died, which is noticed below
            pass
        self._selector.unregister(receiver.lane)
        while self._running:
            self._handle_events()
        for step, queue in enumerate(self._queues):
            if lost := self._meters.depth(step).items:
                raise FlowError(f"queue {queue.name!r}: {lost} items were lost between processes")

    def _wait_for_results(self) -> None:
        """Wait until there is something to read in the pipe of the results, maybe its end."""
        while not self._handle_events():
            pass

    def _handle_events(self) -> bool:
        """Wait for events and handle them. Return whether one is in the pipe of the results."""
        ready = [key.data for key, _ in self._selector.select()]
        for source in ready:
            if isinstance(source, _Worker):
                self._read_report(source)
        if self._server is not None and self._server in ready:
            if event := self._server.next_event():
                self._handle(*event)
            elif self._running:
                raise server_died()
            else:  # its work is done
                self._selector.unregister(self._server)
        return None in ready

    def _handle(self, index: int, kind: int, value: int) -> None:
        """Handle an event of the server."""
        worker = self._workers[index]
        if kind == NOT_STARTED:
            raise cannot_start(OSError(value, os.strerror(value)))
        if kind == STARTED:
            worker.pid = value
        else:
            self._read_report(worker)
            if value or worker.report is None:
                for other in self._running:
                    self._read_report(other)  # raises if another worker reported an exception, which says more
                raise worker_died(worker.stage, worker.number, worker.of, worker.pid, value)
            self._running.remove(worker)
        self._publish_pids()

    def _read_report(self, worker: _Worker) -> None:
        """Read what a worker has reported so far. Raises its exception, if that is what it reported."""
        self._drain(worker)
        if worker.report is None and (pickled := complete_report(worker.received)):
            message: WorkerReport | Failure = pickle.loads(pickled)  # noqa: S301 -- from our own worker
            if isinstance(message, Failure):
                raise message.to_exception()
            worker.report = message

    def _drain(self, worker: _Worker) -> bool:
        """Read all that there is in a worker's pipe. Return whether the worker has closed it, by exiting."""
        while worker.reports.fileno() >= 0:
            try:
                block = os.read(worker.reports.fileno(), 1 << 16)
            except BlockingIOError:
                return False
            worker.received += block
            if not block:
                self._selector.unregister(worker.reports)
                worker.reports.close()
        return True

    def _publish_pids(self) -> None:
        """Replace the map as a whole: other threads read it."""
        started = [worker for worker in self._workers if worker in self._running and worker.pid]
        self.pids = {(worker.stage, worker.number): worker.pid for worker in started}


# ---- the user's functions ----


class _MainFinder(pickle.Pickler):
    """Finds out whether a pickle refers to functions or classes of the main script."""

    refers_to_main = False

    def reducer_override(self, value: Any) -> Any:
        named = value if isinstance(value, type | FunctionType) else type(value)
        self.refers_to_main |= getattr(named, "__module__", None) == "__main__"
        return NotImplemented


def _pickle_job(step: Source | Stage, output: QueueSpec) -> tuple[bytes, bool]:
    """Pickle the user's functions for the workers of a step. Return the pickle and whether it refers to `__main__`.

    Raises `FlowError` naming the function that cannot be pickled.
    """
    weigh = step.weigh if isinstance(step, Stage) else None
    _check_picklable(f"stage {step.name!r}: function", step.function)
    _check_picklable(f"stage {step.name!r}: weigh", weigh)
    _check_picklable(f"queue {output.name!r}: route", output.route)
    job = Job(step.function, weigh, output.route)
    pickled = pickle.dumps(job)
    finder = _MainFinder(BytesIO())
    if b"__main__" in pickled:  # it may be a mere string; the finder is slow, and a corpus may have 100,000 paths
        finder.dump(job)
    return pickled, finder.refers_to_main


def _check_picklable(role: str, function: object) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise FlowError(
            f"{role} {function!r} cannot be pickled: define it at module level, or run the pipeline in threads"
        ) from error


def _main_script() -> MainScript:
    """Return the main script, for workers that need it. Raises `FlowError` if they cannot import it."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return MainScript(spec.name, None)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).exists():
        raise FlowError(
            "a stage function is defined in __main__, which workers cannot import here (an interactive session, "
            "python -c, or standard input): move it to a module, or run the pipeline in threads"
        )
    return MainScript(None, str(Path(file).absolute()))
