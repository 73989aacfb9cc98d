"""The thread in the main process that watches over the workers.

The shutdown protocol
=====================

Everything that ends a run is said here once; the code elsewhere only names the rule that it keeps.

**Who does what.** The main thread iterates over the results; it blocks only in `Channel.wait_or`, and in reading a
message that has begun to arrive. The supervisor blocks in ``multiprocessing.connection.wait`` on the exit of every
worker, on one private report pipe for each, and on a pipe that wakes it up; it never polls and never touches an item. A
worker blocks where it likes, because it can always be killed.

**End of stream.** A stage is finished when all its processes have exited with 0, having reported. Only then does the
supervisor put one `Stop` for each consumer on the next queue. Why not let the last worker to finish do it? Because
``multiprocessing.Queue.put`` only hands an item to a feeder thread of its process. The order in which items of
*different* processes come out of a queue is therefore not the order in which ``put`` returned: the ``Stop`` of the last
worker can overtake data that the feeder of another is still writing. The consumer would leave early, the data would be
lost, and the other producer, waiting at its exit for its feeder to get rid of its data, would wait for ever. A process
that has exited normally has flushed its feeder, so what the supervisor puts afterwards does come last.
(tests/flow/test_flow_end_of_stream.py shows the race.)

**Reports.** A worker sends one message on its report pipe: a `WorkerReport` after its outputs are flushed, or a
`Failure` with the exception. The main process closes its copy of the writing end as soon as the worker has started,
so that a dead worker's pipe ends. Exit status 0 without a report is a death like any other (``os._exit(0)``).

**Failure.** The first failure ends the run, and an exception that was reported takes precedence over a death noticed at
the same time. No retry in place is sound: a process that was killed inside ``Queue.get`` or ``put`` leaves the lock of
that queue held for ever. So the supervisor kills every process (with SIGKILL: they own nothing that needs care) and
joins them; then it hangs up the results channel, so that a main thread caught in the middle of a half-written message
sees its end; then it rings the alarm that `Channel.wait_or` waits for; and the main thread raises the failure.

**Early end.** ``break``, an exception in the caller's loop, Ctrl-C, or collection of the generator: the main thread
wakes the supervisor, which kills and joins as above. Ctrl-C is held back meanwhile (`launch.interrupts_held`). The
same is done at interpreter exit for a run that is still open: afterwards it would be too late, because the supervisor,
a daemon thread, is frozen then.

**Death of the main process.** Every worker has a thread that waits for it and exits at once
(`worker._follow_parent_into_death`), having removed the folders that the main process would have removed: those that
`Pipeline` was told of, and multiprocessing's own. Closing a Process object here has the same effect, should a kill have
missed; it says beforehand, in the worker's meter, that nothing is to be removed.
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
from .launch import process_table
from .messages import Failure, WorkerReport
from .meters import Activity, Meter

_JOIN_SECONDS = 5.0  # a killed process ends at once, unless the kernel holds it (say, in a dead network file system)


@dataclass(eq=False)
class Worker:
    """One worker process, as the main process knows it."""

    number: int
    process: BaseProcess
    reports: Connection
    meter: Meter
    report: WorkerReport | None = None


@dataclass(eq=False)
class StageWorkers:
    """The workers of one stage, and the channel that they write to."""

    stage: str
    outlet: Channel
    workers: list[Worker] = field(default_factory=list)


class Supervisor:
    """Watches crews until all are finished, one has failed, or `end` is called; leaves no process behind."""

    def __init__(self, crews: Sequence[StageWorkers]) -> None:
        self.alarm, self._alarm_bell = Pipe(duplex=False)
        self._woken, self._wake = Pipe(duplex=False)
        self._crews = crews
        self._running = {worker: crew for crew in crews for worker in crew.workers}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="flow supervisor", daemon=True)
        self.pids: Mapping[tuple[str, int], int] = {}
        self._publish_pids()

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """Kill what still runs, and return when nothing does. May be called again, and after any outcome."""
        if self._thread.is_alive():
            self._wake.send_bytes(b"end")
            self._thread.join()
        for connection in (self.alarm, self._alarm_bell, self._woken, self._wake):
            connection.close()

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller is the supervisor's own thread."""
        return threading.current_thread() is self._thread

    @property
    def failed(self) -> bool:
        """Whether the run has failed."""
        return self._failure is not None

    def take_failure(self) -> BaseException:
        """Return what ended the run, and forget it: kept here, it would be kept alive by its own traceback."""
        failure, self._failure = self._failure, None
        assert failure is not None, "the alarm rings only for a failure"
        return failure.with_traceback(None)

    def reports(self) -> list[WorkerReport]:
        """Return the reports that have come, in the order of stages and workers."""
        return [worker.report for crew in self._crews for worker in crew.workers if worker.report]

    def _run(self) -> None:
        try:
            try:
                self._watch()
            finally:
                end_processes([worker for crew in self._crews for worker in crew.workers])
        except BaseException as failure:  # a fault of our own must not leave the main thread waiting either
            self._failure = failure
        self._running.clear()
        self._publish_pids()
        if self._failure:
            self._crews[-1].outlet.hang_up()
            self._alarm_bell.send_bytes(b"failed")

    def _watch(self) -> None:
        """Return when all workers are finished or `end` was called; raise what a worker failed with."""
        while self._running:
            reporting = {worker.reports: worker for worker in self._running if not worker.reports.closed}
            exiting = {worker.process.sentinel: worker for worker in self._running}
            ready = wait([self._woken, *reporting, *exiting])
            if self._woken in ready:
                return
            for connection, worker in reporting.items():
                if connection in ready:
                    _read_report(worker)
            for sentinel, worker in exiting.items():
                if sentinel in ready:
                    self._note_exit(worker)

    def _note_exit(self, worker: Worker) -> None:
        _read_report(worker)
        with process_table:
            worker.process.join(_JOIN_SECONDS)
            status = worker.process.exitcode  # None if other code in this process was first to collect it
        if status or worker.report is None:
            self._raise_death(worker, status)
        crew = self._running.pop(worker)
        self._publish_pids()
        if crew not in self._running.values():
            crew.outlet.stop()

    def _raise_death(self, worker: Worker, status: int | None) -> None:
        for other in self._running:
            _read_report(other)  # an exception says more than a death
        crew = self._running[worker]
        pid = worker.process.pid or 0
        began = worker.meter.activity != Activity.STARTING
        raise worker_died(crew.stage, worker.number, len(crew.workers), pid, status, began)

    def _publish_pids(self) -> None:
        """Replace the map as a whole: other threads read it without a lock."""
        self.pids = {(crew.stage, worker.number): worker.process.pid or 0 for worker, crew in self._running.items()}


def end_processes(workers: Sequence[Worker]) -> None:
    """Kill those that still run, wait for all, and free what the main process holds of them."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        wait([worker.process.sentinel], _JOIN_SECONDS)
        with process_table:
            worker.process.join(0)
            if worker.process.exitcode is not None:
                worker.meter.dismiss()  # should the kill have missed: the fork server was killed, and knows no more
                worker.process.close()
        worker.reports.close()


def _read_report(worker: Worker) -> None:
    """Take what the worker has reported so far; raise the exception if it is one."""
    message = _receive(worker.reports)
    if isinstance(message, Failure):
        raise message.to_exception()
    worker.report = message or worker.report


def _receive(reports: Connection) -> WorkerReport | Failure | None:
    """Return the message on a report pipe if there is one; close the pipe at its end."""
    if reports.closed or not reports.poll():
        return None
    try:
        message: WorkerReport | Failure = reports.recv()
    except (EOFError, OSError):  # the worker has exited, perhaps in the middle of a word: its exit status will tell
        reports.close()
        return None
    return message
