"""The supervisor: the thread in the main process that watches the workers.

The shutdown protocol
=====================

This note is the one description of how a run ends. Code elsewhere only names the rule that it follows.

**Who blocks where.** The main thread iterates over the results. It blocks only in `Channel.wait_for_message`, and while
it reads a message that has begun to arrive. The supervisor blocks in `multiprocessing.connection.wait` on the exit of
every worker, on one private report pipe for each worker, and on a pipe that wakes it up. It never polls and never
touches an item. A worker may block anywhere, because it can always be killed.

**End of stream.** A stage is finished when all its processes have reported and exited with status 0. Only then does the
supervisor put one `Stop` for each consumer on the next queue. Why not let the last worker of the stage do it? Because
`multiprocessing.Queue.put` only hands an item to a feeder thread of its process. The order in which items of
*different* processes come out of a queue is therefore not the order in which `put` returned: the `Stop` of the last
worker can overtake data that another worker's feeder is still writing. The consumer would leave early and the data
would be lost. The other producer would then wait forever at its exit, for its feeder to write data that no process
reads. A process that has exited normally has flushed its feeder, so a `Stop` that the supervisor puts afterwards does
come last. (tests/flow/test_flow_end_of_stream.py demonstrates the race.)

**Reports.** A worker sends one message on its report pipe: a `WorkerReport` after its outputs are flushed, or a
`Failure` with the exception. The main process closes its copy of the writing end as soon as the worker has started, so
that the pipe of a dead worker reaches end of file. Exit status 0 without a report counts as a death like any other
(`os._exit(0)`).

**Failure.** The first failure ends the run. An exception that was reported takes precedence over a death noticed at the
same time. Retrying in place is never sound: a process killed inside `Queue.get` or `put` leaves the lock of that queue
held forever. So the supervisor

1. kills every process (with SIGKILL: a worker owns nothing that needs a clean exit) and joins it;
2. closes the writers of the results channel, so that a main thread in the middle of a half-written message gets end of
   file;
3. signals the alarm, which `Channel.wait_for_message` also waits for.

The main thread then raises the failure.

**Early end.** `break`, an exception in the caller's loop, Ctrl-C, or garbage collection of the generator: the main
thread wakes the supervisor, which kills and joins as above. Ctrl-C is deferred meanwhile (`launch.signals_deferred`).
The same happens at interpreter exit for a run that is still open. Later would be too late, because the supervisor is a
daemon thread and is frozen by then.

**Death of the main process.** Every worker has a thread that waits for it (`worker._start_parent_watch`). The worker
then exits at once, after removing the folders that the main process would have removed: those passed to `Pipeline`, and
multiprocessing's own. Closing a Process object in the main process looks the same to the worker, which ends a worker
that a kill has missed. Before closing it, the main process therefore sets a flag in the worker's meter, so that the
worker removes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from .channel import Channel
from .diagnostics import worker_died
from .launch import process_table_lock
from .messages import Failure, WorkerReport
from .meters import Activity, Meter

#: Upper bound on the wait for a killed process, in seconds. It ends at once, unless it is stuck in the kernel (for
#: example in a dead network file system). Longer delays the error in that case; shorter could miss an exit status.
_JOIN_SECONDS = 5.0


@dataclass(eq=False)
class Worker:
    """One worker process, as seen by the main process."""

    number: int
    process: BaseProcess
    reports: Connection
    meter: Meter
    report: WorkerReport | None = None


@dataclass(eq=False)
class StageWorkers:
    """The workers of one stage, and the channel that they write to."""

    stage: str
    output_channel: Channel
    workers: list[Worker] = field(default_factory=list)


class Supervisor:
    """Watches the workers of all stages until they finish, one fails, or `shut_down` is called. Leaves no process.

    Attributes:
        alarm: Readable once the run has failed.
        pids: The running workers, by stage and worker number.
    """

    def __init__(self, stages: Sequence[StageWorkers]) -> None:
        self.alarm, self._alarm_writer = Pipe(duplex=False)
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._stages = stages
        self._running = {worker: stage for stage in stages for worker in stage.workers}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="flow supervisor", daemon=True)
        self.pids: Mapping[tuple[str, int], int] = {}
        self._publish_pids()

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def shut_down(self) -> None:
        """Kill the workers that are still running, and return when none is. Idempotent, and valid after any outcome."""
        if self._thread.is_alive():
            self._wake_writer.send_bytes(b"end")
            self._thread.join()
        for connection in (self.alarm, self._alarm_writer, self._wake_reader, self._wake_writer):
            connection.close()

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller runs in the supervisor's own thread."""
        return threading.current_thread() is self._thread

    @property
    def failed(self) -> bool:
        """Whether the run has failed."""
        return self._failure is not None

    def take_failure(self) -> BaseException:
        """Return the failure that ended the run, and drop it: kept here, its own traceback would keep it alive."""
        failure, self._failure = self._failure, None
        assert failure is not None, "the alarm is signalled only for a failure"  # noqa: S101
        return failure.with_traceback(None)

    def reports(self) -> list[WorkerReport]:
        """Return the reports received so far, in the order of stages and workers."""
        return [worker.report for stage in self._stages for worker in stage.workers if worker.report]

    def _run(self) -> None:
        try:
            try:
                self._watch()
            finally:
                kill_and_join([worker for stage in self._stages for worker in stage.workers])
        except BaseException as failure:  # a bug of our own must not leave the main thread waiting either
            self._failure = failure
        self._running.clear()
        self._publish_pids()
        if self._failure:
            self._stages[-1].output_channel.close_writers()
            self._alarm_writer.send_bytes(b"failed")

    def _watch(self) -> None:
        """Return when all workers are finished or `shut_down` was called. Raise the first failure of a worker."""
        while self._running:
            reporting = {worker.reports: worker for worker in self._running if not worker.reports.closed}
            exiting = {worker.process.sentinel: worker for worker in self._running}
            ready = wait([self._wake_reader, *reporting, *exiting])
            if self._wake_reader in ready:
                return
            for connection, worker in reporting.items():
                if connection in ready:
                    _read_report(worker)
            for sentinel, worker in exiting.items():
                if sentinel in ready:
                    self._handle_exit(worker)

    def _handle_exit(self, worker: Worker) -> None:
        _read_report(worker)
        with process_table_lock:
            worker.process.join(_JOIN_SECONDS)
            status = worker.process.exitcode  # None if other code in this process collected it first
        if status or worker.report is None:
            self._raise_worker_died(worker, status)
        stage = self._running.pop(worker)
        self._publish_pids()
        if stage not in self._running.values():
            stage.output_channel.send_stop()

    def _raise_worker_died(self, worker: Worker, status: int | None) -> None:
        for other in self._running:
            _read_report(other)  # raises if another worker reported an exception, which says more than a death
        stage = self._running[worker]
        pid = worker.process.pid or 0
        started = worker.meter.activity != Activity.STARTING
        raise worker_died(stage.stage, worker.number, len(stage.workers), pid, status, started)

    def _publish_pids(self) -> None:
        """Replace the map as a whole: other threads read it without a lock."""
        self.pids = {(stage.stage, worker.number): worker.process.pid or 0 for worker, stage in self._running.items()}


def kill_and_join(workers: Sequence[Worker]) -> None:
    """Kill the workers that are still running, wait for all of them, and free the main process's handles to them."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        wait([worker.process.sentinel], _JOIN_SECONDS)
        with process_table_lock:
            worker.process.join(0)
            if worker.process.exitcode is not None:
                # If the fork server was killed, it cannot report exits: there is an exit code, but the kill may have
                # missed. `close` then ends the worker as if this process had died, and it must not clean up.
                worker.meter.disable_cleanup()
                worker.process.close()
        worker.reports.close()


def _read_report(worker: Worker) -> None:
    """Store the worker's report if one has arrived. Raise the exception if the worker reported a failure."""
    message = _receive(worker.reports)
    if isinstance(message, Failure):
        raise message.to_exception()
    worker.report = message or worker.report


def _receive(reports: Connection) -> WorkerReport | Failure | None:
    """Return the message on a report pipe if there is one. Close the pipe at end of file."""
    if reports.closed or not reports.poll():
        return None
    try:
        message: WorkerReport | Failure = reports.recv()
    except (EOFError, OSError):  # the worker has exited, maybe in the middle of a message: see its exit status
        reports.close()
        return None
    return message
