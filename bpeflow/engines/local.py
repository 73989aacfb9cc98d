"""`ProcessEngine`: tasks in processes of this machine, as a cluster of one node. The specification of an engine."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from bpeflow._util.machine import available_cores
from bpeflow.engines.engine import Call, Handle, TaskReport, host_name, run_call
from bpeflow.errors import BpeflowError, EngineError, TaskLostError

if TYPE_CHECKING:
    from bpeflow.config import EngineSettings

#: Seconds to wait for the answer of a probe, which includes the start of a process.
_PROBE_SECONDS = 60.0


@dataclass
class _Worker:
    """A process, and the number of the task that it runs, if any."""

    process: BaseProcess
    connection: Connection
    task: int | None = None


class ProcessEngine:
    """Runs each task in one of a few processes, which are started when they are needed.

    A worker ends as soon as the other end of its connection is closed, so it never outlives this process, however that
    ends. A worker that dies takes its task with it, and another one takes its place.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """Start no process yet."""
        self._slots = settings.workers or max(available_cores() // settings.cpus_per_task, 1)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["bpeflow.counting.work"])  # which takes half a second in each process
        self._workers: list[_Worker] = []
        self._waiting: deque[tuple[int, Call]] = deque()
        self._ended: dict[Handle, TaskReport | BpeflowError] = {}
        self._numbers = itertools.count()

    @property
    def slots(self) -> int:
        """The number of processes."""
        return self._slots

    def nodes(self, probe: Call) -> Sequence[TaskReport | BpeflowError]:
        """Run the probe in one process, as all are on this machine."""
        handle = self.submit(probe, 1, 0)
        if not self.wait([handle], _PROBE_SECONDS):
            raise EngineError(f"no process of node {host_name()} has answered for {_PROBE_SECONDS:.0f} s")
        try:
            return [self.result(handle)]
        except TaskLostError as error:
            raise EngineError(f"the probe of {host_name()} failed: {error}") from error

    def submit(self, call: Call, cpus: int, memory: int) -> Handle:  # noqa: ARG002
        """Start a task as soon as a process is free. Memory is not limited."""
        number = next(self._numbers)
        self._waiting.append((number, call))
        self._assign()
        return number

    def wait(self, handles: Collection[Handle], timeout: float) -> Sequence[Handle]:
        """Wait until one of these tasks has ended."""
        deadline = monotonic() + timeout
        while not (ended := [handle for handle in handles if handle in self._ended]):
            busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
            ready = wait([*busy], max(deadline - monotonic(), 0))
            if not ready:
                break
            for connection in ready:
                self._receive(busy[connection])  # type: ignore[index]
            self._assign()
        return ended

    def result(self, handle: Handle) -> TaskReport | BpeflowError:
        """Return the outcome of a task that has ended. Raises `TaskLostError` if its process died."""
        outcome = self._ended.pop(handle)
        if isinstance(outcome, TaskLostError):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Kill all processes."""
        self._waiting.clear()
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def _assign(self) -> None:
        """Give tasks to processes that are free or not started yet."""
        while self._waiting:
            worker = next((worker for worker in self._workers if worker.task is None), None)
            if worker is None:
                if len(self._workers) >= self._slots:
                    return
                worker = self._start()
            worker.task, call = self._waiting[0]
            try:
                worker.connection.send(call)
            except OSError:  # it has died while it was idle
                self._bury(worker)
                continue
            self._waiting.popleft()

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), name="bpeflow task", daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _receive(self, worker: _Worker) -> None:
        """Note the outcome of the worker's task, or that both are lost."""
        assert worker.task is not None, "only busy workers send"  # noqa: S101 -- for the type checker
        try:
            self._ended[worker.task] = worker.connection.recv()
            worker.task = None
        except (EOFError, OSError):
            self._ended[worker.task] = TaskLostError(f"a process of node {host_name()} {self._bury(worker)}")

    def _bury(self, worker: _Worker) -> str:
        """Forget a worker that has died, and return how it died."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        status = worker.process.exitcode or 0
        if status >= 0:
            return f"ended with status {status}"
        memory = " (out of memory?)" if status == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-status).name}{memory}"


def _work(connection: Connection) -> None:
    """Run tasks until the connection is closed: the main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the main one ends these
    calls: SimpleQueue[Call] = SimpleQueue()
    threading.Thread(target=_receive_calls, args=(connection, calls), daemon=True).start()
    while True:
        call = calls.get()
        outcome = run_call(call)
        try:
            connection.send(outcome)
        except (TypeError, AttributeError, ValueError) as error:  # as pickle raises them
            connection.send(EngineError(f"{call.name}: its result cannot be sent: {error} (please report this)"))


def _receive_calls(connection: Connection, calls: SimpleQueue[Call]) -> None:
    """Receive tasks. When the connection is closed, end the process at once, even in the middle of a task."""
    try:
        while True:
            calls.put(connection.recv())
    finally:
        os._exit(1)
