"""One run of a pipeline in processes: open its channels, start its workers, yield the results, shut it down."""

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
from .launch import Launcher, signals_deferred
from .messages import Stop, WorkerReport
from .meters import Activity, Meter
from .spec import QueueSpec
from .supervisor import StageWorkers, Supervisor, Worker, kill_and_join
from .worker import WorkerContext


class Pool:
    """The processes of a pipeline and the channels between them.

    Args:
        context: The multiprocessing context.
        launcher: Starts the workers.
        names: The names of the source and of the stages.
        jobs: Their pickled functions.
        queues: The queues that they write to.
        meters: The meters of the workers of each, and last the caller's.
        temporary: Folders that workers remove if the main process is killed.
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
            Channel(context, queue, producers, consumers)
            for queue, (producers, consumers) in zip(queues, pairwise(meters), strict=True)
        ]
        self._stages = [StageWorkers(name, channel) for name, channel in zip(names, self._channels, strict=True)]
        self._jobs = jobs
        self._meters = meters
        self._supervisor: Supervisor | None = None
        for meter in chain.from_iterable(meters):
            meter.set_activity(Activity.STARTING)

    def start(self) -> None:
        """Start every worker, and then the supervisor. If one of them cannot start, no worker is left."""
        try:
            for index, stage in enumerate(self._stages):
                for number in range(len(self._meters[index])):
                    stage.workers.append(self._start_worker(index, number))
            supervisor = Supervisor(self._stages)
            supervisor.start()
        except BaseException:
            kill_and_join([worker for stage in self._stages for worker in stage.workers])
            raise
        self._supervisor = supervisor
        atexit.register(self._shut_down_at_exit)

    def results(self) -> Iterator[Any]:
        """Yield the items that the last stage puts out. Raise the failure if the run fails."""
        assert self._supervisor is not None, "results come after start"  # noqa: S101
        channel, [meter] = self._channels[-1], self._meters[-1]
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        while channel.wait_for_message(self._supervisor.alarm):
            try:
                item = channel.get(0, meter)
            except (EOFError, OSError):
                if self._supervisor.failed:  # the writers were closed in the middle of a message
                    break
                raise
            if isinstance(item, Stop):
                for queue in self._channels:
                    queue.check_empty()
                return
            yield item
            meter.set_activity(Activity.WAITING_FOR_ITEM)
        raise self._supervisor.take_failure()

    def shut_down(self) -> list[WorkerReport]:
        """End the run in any state, leave no process, thread or pipe behind, and return the workers' reports."""
        if sys.is_finalizing():  # threads are frozen, so waiting is impossible; workers exit when this process does
            return []
        if self._supervisor is not None:
            if self._supervisor.is_this_thread:  # garbage collection in that thread has finalized the generator
                threading.Thread(target=self.shut_down, name="flow end").start()
                return []
            self._supervisor.shut_down()
        for channel in self._channels:
            channel.close()
        atexit.unregister(self._shut_down_at_exit)
        return self._supervisor.reports() if self._supervisor else []

    def _shut_down_at_exit(self) -> None:
        with signals_deferred():
            self.shut_down()

    @property
    def pids(self) -> Mapping[tuple[str, int], int]:
        """The running workers, by stage and worker number."""
        return self._supervisor.pids if self._supervisor else {}

    def _start_worker(self, index: int, number: int) -> Worker:
        stage = self._stages[index]
        reader, writer = Pipe(duplex=False)
        meter = self._meters[index][number]
        input_channel = self._channels[index - 1] if index else None
        with writer:  # closed once the worker has its own copy: see `supervisor`, Reports
            try:
                temporary = (*self._temporary, *self._launcher.temporary_folders())
                worker_context = WorkerContext(
                    stage.stage,
                    number,
                    self._jobs[index],
                    input_channel,
                    stage.output_channel,
                    meter,
                    writer,
                    temporary,
                )
                process = self._launcher.start(f"{stage.stage} {number}", worker_context)
            except (OSError, EOFError) as error:
                raise cannot_start(stage.stage, number, len(self._meters[index]), error) from error
        return Worker(number, process, reader, meter)
