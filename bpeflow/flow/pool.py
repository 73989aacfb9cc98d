"""One run of a pipeline in processes: opening its channels, starting its workers, handing out results, ending it."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from multiprocessing import Pipe
from multiprocessing.context import BaseContext
from typing import Any

from .channel import Channel
from .diagnostics import cannot_start
from .launch import Launcher, interrupts_held
from .messages import Stop, WorkerReport
from .meters import Activity, Meter
from .spec import QueueSpec
from .supervisor import StageWorkers, Supervisor, Worker, end_processes
from .worker import WorkerContext


class Pool:
    """The processes of a pipeline and the channels between them.

    ``names`` and ``jobs`` are those of the source and the stages; ``queues`` follow them one by one; ``meters`` belong
    to the processes of each, and last to the caller. ``temporary``: folders that go if the main process is killed.
    """

    def __init__(
        self,
        context: BaseContext,
        launcher: Launcher,
        names: Sequence[str],
        jobs: Sequence[bytes],
        queues: Sequence[QueueSpec],
        meters: Sequence[Sequence[Meter]],
        temporary: Sequence[str] = (),
    ) -> None:
        self._launcher = launcher
        self._temporary = tuple(temporary)
        self._channels = [
            Channel(context, queue, above, below)
            for queue, (above, below) in zip(queues, pairwise(meters), strict=True)
        ]
        self._crews = [StageWorkers(name, channel) for name, channel in zip(names, self._channels, strict=True)]
        self._jobs = jobs
        self._meters = meters
        self._supervisor: Supervisor | None = None
        for meter in chain.from_iterable(meters):
            meter.turn_to(Activity.STARTING)

    def start(self) -> None:
        """Start every worker, and then the supervisor. If one cannot be started, none is left."""
        try:
            for place, crew in enumerate(self._crews):
                for number in range(len(self._meters[place])):
                    crew.workers.append(self._start_worker(place, number))
            supervisor = Supervisor(self._crews)
            supervisor.start()
        except BaseException:
            end_processes([worker for crew in self._crews for worker in crew.workers])
            raise
        self._supervisor = supervisor
        atexit.register(self._end_at_exit)

    def results(self) -> Iterator[Any]:
        """Yield what the last stage puts out; raise the failure if the run has one."""
        assert self._supervisor is not None, "results come after start"
        channel, [meter] = self._channels[-1], self._meters[-1]
        meter.turn_to(Activity.WAITING_FOR_ITEM)
        while channel.wait_or(self._supervisor.alarm):
            try:
                item = channel.get(0, meter)
            except (EOFError, OSError):
                if self._supervisor.failed:  # the channel was hung up in the middle of a message
                    break
                raise
            if isinstance(item, Stop):
                for queue in self._channels:
                    queue.check_empty()
                return
            yield item
            meter.turn_to(Activity.WAITING_FOR_ITEM)
        raise self._supervisor.take_failure()

    def end(self) -> list[WorkerReport]:
        """End the run whatever its state, leave no process, thread or pipe behind, and return the workers' reports."""
        if sys.is_finalizing():  # threads are frozen, so nothing can be waited for; workers see our end and follow
            return []
        if self._supervisor is not None:
            if self._supervisor.is_this_thread:  # the garbage collector, run in that thread, has found our generator
                threading.Thread(target=self.end, name="flow end").start()
                return []
            self._supervisor.end()
        for channel in self._channels:
            channel.close()
        atexit.unregister(self._end_at_exit)
        return self._supervisor.reports() if self._supervisor else []

    def _end_at_exit(self) -> None:
        with interrupts_held():
            self.end()

    @property
    def pids(self) -> Mapping[tuple[str, int], int]:
        """Processes that run, by stage and worker number."""
        return self._supervisor.pids if self._supervisor else {}

    def _start_worker(self, place: int, number: int) -> Worker:
        crew = self._crews[place]
        ours, theirs = Pipe(duplex=False)
        meter = self._meters[place][number]
        inlet = self._channels[place - 1] if place else None
        with theirs:  # once the worker has its own copy, ours must go: see `supervisor`, Reports
            try:
                temporary = (*self._temporary, *self._launcher.temporary())
                post = WorkerContext(
                    crew.stage, number, self._jobs[place], inlet, crew.outlet, meter, theirs, temporary
                )
                process = self._launcher.start(f"{crew.stage} {number}", post)
            except (OSError, EOFError) as error:
                raise cannot_start(crew.stage, number, len(self._meters[place]), error) from error
        return Worker(number, process, ours, meter)
