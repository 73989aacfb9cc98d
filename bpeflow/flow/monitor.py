"""Monitoring of a running pipeline: samples of its queues, rates and processes, stalls, and the slow stage.

It observes and never decides.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from weakref import ref

from .pipeline import MAIN, Pipeline, Snapshot
from .shared import Activity, Meter, QueueDepth, start_threads

_log = logging.getLogger(__name__)

#: Workers of a stall that are described one by one: a stage may have hundreds.
_MAX_DESCRIBED = 8

#: Seconds: the unit in which the system counts CPU time, so a rate over a shorter time means nothing.
_TICK = 0.01

#: Share of its time that the slow stage works, at least. The others wait for it, and so work less.
_BUSY = 0.75

#: Share of its time that the stage before the slow one, or after a slow source, waits for it.
_HALF = 0.5


@dataclass(frozen=True)
class StageRate:
    """The rates of a stage since the last sample, and its totals. The source has no inputs, so its outputs count."""

    items_per_second: float
    weight_per_second: float  # in units of `Stage.weigh`
    items: int  # taken
    weight_done: int  # of finished items
    workers_alive: int
    workers_busy: float = 0.0  # how many worked since the last sample, on average; the others waited
    gauge: int = 0  # the greatest number that a worker has given to `set_gauge`
    workers: int = 0  # those alive, and those that have ended


@dataclass(frozen=True)
class ProcessUse:
    """The current resource use of one process. Workers in threads are part of the main process."""

    stage: str  # "main" for the main process
    worker: int  # within the stage, from 0
    pid: int
    cpu_percent: float  # since the last sample, or since the start of the monitor; 100 is one full core
    rss_bytes: int


@dataclass(frozen=True)
class MonitorSample:
    """One observation of a pipeline. Queues and stages are in pipeline order, by name."""

    elapsed: float  # seconds since the monitor started
    queues: Mapping[str, QueueDepth]
    stages: Mapping[str, StageRate]
    processes: tuple[ProcessUse, ...]  # after the end of a run only the main process
    bounds: Mapping[str, QueueDepth]  # of the queues
    bottleneck: str | None = None  # the stage that all others have waited for since the last sample

    def line(self) -> str:
        """Return the sample as one line of text.

        For example `chunk_queue: 684, counter_queue: 3, merged_queue: 0 | chunk reader: 190 items/s, counter: 12.1 MB/s
        | CPU 201 %, 1.3 GB`. A stage with `weigh` shows bytes, any other stage items.
        """
        queues = ", ".join(f"{name}: {depth.items}" for name, depth in self.queues.items())
        rates = ", ".join(f"{name}: {_rate(stage)}" for name, stage in self.stages.items())
        cpu = sum(process.cpu_percent for process in self.processes)
        rss = sum(process.rss_bytes for process in self.processes)
        use = f" | CPU {cpu:.0f} %, {_with_prefix(rss)}B" if self.processes else ""
        return f"{queues} | {rates}{use}"


@dataclass(eq=False)
class Monitor:
    """Samples a pipeline every `interval` seconds, and once at the end, and passes each sample to `on_sample`.

    A context manager around the loop over the results:

        with Monitor(pipeline, interval=10.0, on_sample=lambda sample: print(sample.line())):
            for item in pipeline.run():
                ...

    Attributes:
        pipeline: The pipeline to watch.
        interval: Seconds between two samples.
        on_sample: Called with each sample, in the monitor's thread. Its errors are logged and do not affect the run.
        processes: If False, samples contain no processes, and psutil is not needed.
    """

    pipeline: Pipeline
    interval: float
    on_sample: Callable[[MonitorSample], object]
    processes: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        # Anything put in it ends the thread. The end of this object puts something, too, as Ctrl-C may come just before
        # `__exit__`.
        self._ended: SimpleQueue[object] = SimpleQueue()
        arguments = (ref(self, self._ended.put), self._ended, self.interval)
        self._thread = threading.Thread(target=_sample_until, args=arguments, name="flow monitor", daemon=True)
        self._last = self.pipeline.snapshot()
        self._start = self._last.time
        self._cpu_seconds: dict[int, float] = {}  # by process id
        self._measure(self._last, 1.0)  # to leave out the CPU time used until now

    def __enter__(self) -> Monitor:
        """Start sampling."""
        start_threads([self._thread])
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the last sample and stop."""
        self._ended.put(None)
        self._thread.join()

    def deliver(self) -> None:
        """Take a sample, and pass it on."""
        try:
            self.on_sample(self._sample())
        except Exception as error:
            bug = not isinstance(error, MemoryError | OSError)  # which needs a traceback
            message = str(error) or type(error).__name__
            _log.warning("the monitor could not take or deliver a sample: %s", message, exc_info=bug)

    def _sample(self) -> MonitorSample:
        last, self._last = self._last, (now := self.pipeline.snapshot())
        seconds = max((now.time - last.time) / 1e9, _TICK)
        return MonitorSample(
            elapsed=(now.time - self._start) / 1e9,
            queues=now.queues,
            stages={name: _stage_rate(name, last, now, seconds) for name in self.pipeline.names},
            processes=self._measure(now, seconds),
            bounds={queue.name: QueueDepth(queue.max_items, queue.max_bytes) for queue in self.pipeline.queues},
            bottleneck=find_bottleneck(last, now),
        )

    def _measure(self, snapshot: Snapshot, seconds: float) -> tuple[ProcessUse, ...]:
        """Return the use of resources by each process, the main process last."""
        if not self.processes:
            return ()
        import psutil  # here, because its import takes longer than many runs that are not monitored

        uses = []
        workers = [
            (stage, number, meter.pid) for stage, number, meter in snapshot.running() if meter.pid != os.getpid()
        ]
        for stage, number, pid in (*workers, (MAIN, 0, os.getpid())):
            with suppress(psutil.Error):  # it has just exited
                process = psutil.Process(pid)
                used = sum(process.cpu_times()[:2])  # by the user and by the system
                before, self._cpu_seconds[pid] = self._cpu_seconds.get(pid, 0.0), used
                percent = 100 * (used - before) / seconds
                uses.append(ProcessUse(stage, number, pid, percent, process.memory_info().rss))
        return tuple(uses)


def _stage_rate(stage: str, last: Snapshot, now: Snapshot, seconds: float) -> StageRate:
    counter = "items_in" if now.total(stage, "items_in") else "items_out"
    items, weight = now.total(stage, counter), now.total(stage, "weight_done")
    return StageRate(
        items_per_second=(items - last.total(stage, counter)) / seconds,
        weight_per_second=(weight - last.total(stage, "weight_done")) / seconds,
        items=items,
        weight_done=weight,
        workers_alive=sum(meter.pid > 0 for meter in now.meters[stage]),
        workers_busy=(now.seconds(stage)[Activity.WORKING] - last.seconds(stage)[Activity.WORKING]) / seconds,
        gauge=max(meter.gauge for meter in now.meters[stage]),
        workers=len(now.meters[stage]),
    )


def _sample_until(monitor: ref[Monitor], ended: SimpleQueue[object], interval: float) -> None:
    """Let a monitor sample, as long as it exists, until the queue has an item."""
    while True:
        try:
            is_last = ended.get(timeout=interval) is None
        except Empty:
            is_last = False
        if (sampling := monitor()) is None:
            return
        sampling.deliver()
        if is_last:
            return
        del sampling


def stall_watch(pipeline: Pipeline, patience: float = 60.0) -> Monitor:
    """Return a monitor that only logs a warning when there has been no progress for `patience` seconds, and its end."""
    stalled = False

    def log(_: MonitorSample) -> None:
        nonlocal stalled
        stall = find_stall(pipeline.snapshot(), patience)
        if stalled != bool(stall):
            stalled = not stalled
            _log.warning("%s", stall or "progress again")

    return Monitor(pipeline, patience / 12, log, processes=False)


def _rate(stage: StageRate) -> str:
    if stage.weight_done:
        return f"{_with_prefix(stage.weight_per_second)}B/s"
    return f"{_with_prefix(stage.items_per_second).rstrip()} items/s"


def _with_prefix(number: float) -> str:
    """Return a number with about three digits and a decimal prefix, such as `12.1 M` or `684`."""
    for prefix in ("", "k", "M", "G"):
        if number < 999.5:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} T"


def find_stall(snapshot: Snapshot, patience: float) -> str:
    """Describe the workers that have been at one item for `patience` seconds; if all have waited for so long, all.

    For example `no progress for 73 s: counter 2 working (pid 4711, disk-sleep)`; nothing if there are none. They may be
    slow or stuck forever. The states of their processes give a clue.
    """
    running = snapshot.running()
    still = [worker for worker in running if snapshot.time - worker[-1].since >= patience * 1e9]
    stalled = [worker for worker in still if worker[-1].activity <= Activity.WORKING]
    if len(still) == len(running):
        stalled = stalled or still
    if not stalled:
        return ""
    described = [_describe(*worker) for worker in stalled[:_MAX_DESCRIBED]]
    if (more := len(stalled) - _MAX_DESCRIBED) > 0:
        described.append(f"and {more} more")
    seconds = min(snapshot.time - meter.since for *_, meter in stalled) / 1e9
    return f"no progress for {seconds:.0f} s: {', '.join(described)}"


def _describe(stage: str, number: int, meter: Meter) -> str:
    status = _status(meter.pid)
    who = stage if meter.pid == os.getpid() else f"{stage} {number}"
    activity = Activity(meter.activity).name.lower().replace("_", " ")
    return f"{who} {activity} (pid {meter.pid}{status and ', '}{status})"


def _status(pid: int) -> str:
    """Return the state of a process, such as `disk-sleep`, if it is known."""
    with suppress(Exception):  # psutil is missing, or the process has just exited
        import psutil  # here, because its import takes longer than many runs that never stall

        return psutil.Process(pid).status()
    return ""


def find_bottleneck(last: Snapshot, now: Snapshot) -> str | None:
    """Return the stage that held up the pipeline between two snapshots; None if the pipeline was balanced.

    It is the last stage that works although the stage before waits for room, or has ended; or else the source, if the
    stage after it waits for items.
    """
    names = list(now.meters)
    shares = []  # of each stage's time, by activity
    for name in names:
        spent = [after - before for after, before in zip(now.seconds(name), last.seconds(name), strict=True)]
        shares.append([seconds / (sum(spent) or 1.0) for seconds in spent])
    for name, before, share in reversed(list(zip(names[1:], shares, shares[1:], strict=False))):
        held_up = before[Activity.WAITING_FOR_ROOM] >= _HALF or not any(before)
        if held_up and share[Activity.WORKING] >= _BUSY:
            return name
    source_is_slow = shares[0][Activity.WORKING] >= _BUSY and shares[1][Activity.WAITING_FOR_AN_ITEM] >= _HALF
    return names[0] if source_is_slow else None
