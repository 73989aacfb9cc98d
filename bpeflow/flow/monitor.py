"""Monitoring of a running pipeline: samples of its queues, rates and processes. It observes and never decides.

How to read a sample: if a queue is full, the stage after it is the slow one; if a queue is empty, the stage before it
is.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .meters import Activity, QueueDepth
from .pipeline import MAIN, Pipeline, Snapshot, StageTotals
from .stalls import Stall, StallLog, find_stall

if TYPE_CHECKING:
    import psutil


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageRate:
    """The rates of a stage since the last sample, and its totals. The source has no inputs, so its outputs count.

    Attributes:
        items_per_second: Rate in items.
        weight_per_second: Rate in units of `Stage.weigh`.
        items: Items taken so far, or put by the source.
        weight_done: Total weight of the finished inputs.
        workers_alive: Workers that are running.
    """

    items_per_second: float
    weight_per_second: float
    items: int
    weight_done: int
    workers_alive: int


@dataclass(frozen=True)
class ProcessUse:
    """The current resource use of one process.

    Attributes:
        stage: Name of the process's stage; "main" for the main process.
        worker: Number of the worker within the stage, from 0.
        pid: Process id.
        cpu_percent: CPU use since the last sample, or since the start of the process or of the monitor if that was
            later. 100 is one full core.
        rss_bytes: Resident memory.
    """

    stage: str
    worker: int
    pid: int
    cpu_percent: float
    rss_bytes: int


@dataclass(frozen=True)
class MonitorSample:
    """One observation of a pipeline, `elapsed` seconds after the monitor started.

    The main process is stage "main". It is the only process in the last sample of a run that has ended. The workers'
    totals are then in `Pipeline.reports`.
    """

    elapsed: float
    queues: Mapping[str, QueueDepth]
    stages: Mapping[str, StageRate]
    processes: tuple[ProcessUse, ...]
    stall: Stall | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as plain dicts, lists and numbers, for JSON."""
        return asdict(self, dict_factory=_plain_dict)

    def line(self) -> str:
        """Return the sample as one line of text.

        For example `chunk_queue: 684, counter_queue: 3, merged_queue: 0 | chunk reader: 190 items/s, counter: 12.1 MB/s
        | CPU 201 %, 1.3 GB`: the items in each queue, the rates of the stages (weight is bytes by convention; a stage
        without `weigh` shows items), and the CPU use and memory of all processes together. A stall follows, as in
        `| no progress for 12 s: counter 2 working (pid 4711, disk-sleep)`.
        """
        queues = ", ".join(f"{name}: {depth.items}" for name, depth in self.queues.items())
        rates = ", ".join(f"{name}: {_rate(stage)}" for name, stage in self.stages.items())
        cpu = sum(process.cpu_percent for process in self.processes)
        rss = sum(process.rss_bytes for process in self.processes)
        stall = f" | {self.stall.line()}" if self.stall else ""
        return f"{queues} | {rates} | CPU {cpu:.0f} %, {_with_prefix(rss)}B{stall}"


#: Least default for `Monitor.patience`, in seconds. Less would report every large item as a stall; more reports real
#: stalls late.
_MIN_PATIENCE = 10.0


def _plain_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.name.lower() if isinstance(value, Activity) else value for key, value in pairs}


def _ignore(sample: MonitorSample) -> None:
    pass


class Monitor:
    """Samples a pipeline every `interval` seconds, and once at the end, and passes each sample to `on_sample`.

    A context manager around the loop over the results:

        with Monitor(pipeline, interval=10.0, on_sample=lambda sample: print(sample.line())):
            for item in pipeline.run():
                ...

    Args:
        pipeline: The pipeline to watch.
        interval: Seconds between two samples.
        on_sample: Called with each sample, in the monitor's thread. Its errors are logged and do not affect the run.
        processes: If False, samples contain no processes, and psutil is not needed.
        patience: Seconds without progress that count as a stall. By default the interval, but at least 10 s.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        interval: float = 10.0,
        on_sample: Callable[[MonitorSample], object] = _ignore,
        *,
        processes: bool = True,
        patience: float | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._interval = interval
        self._on_sample = on_sample
        self._sampler = _Sampler(pipeline.snapshot(), processes, patience or max(interval, _MIN_PATIENCE))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow monitor", daemon=True)

    def __enter__(self) -> Monitor:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the last sample and stop."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(MemoryError):  # of the wait itself; the reader of the results gets an error of its own soon
            while not self._ended.wait(self._interval):
                self._sample()
            self._sample()

    def _sample(self) -> None:
        try:
            self._on_sample(self._sampler.sample(self._pipeline.snapshot()))
        except (MemoryError, OSError) as error:  # not a bug, so the log needs no traceback
            _log.warning("the monitor could not take or deliver a sample: %s", str(error) or type(error).__name__)
        except Exception:
            _log.warning("the monitor could not take or deliver a sample", exc_info=True)


def stall_watch(pipeline: Pipeline, patience: float = 60.0) -> Monitor:
    """Return a monitor that only logs a warning when there has been no progress for `patience` seconds."""
    log = StallLog()
    return Monitor(pipeline, patience / 6, lambda sample: log.update(sample.stall), processes=False, patience=patience)


class _Sampler:
    """Turns snapshots into samples. Remembers the last snapshot, to compute rates."""

    def __init__(self, snapshot: Snapshot, processes: bool, patience: float) -> None:
        self._patience = patience
        self._start = self._last_time = time.monotonic()
        self._last: Mapping[str, StageTotals] = {}
        self._processes = _ProcessSampler(self._start) if processes else None
        if self._processes:
            self._processes.sample(snapshot.pids, self._start)  # to leave out the CPU time used until now

    def sample(self, snapshot: Snapshot) -> MonitorSample:
        now = time.monotonic()
        seconds = max(now - self._last_time, 1e-9)
        stages = {
            name: _stage_rate(self._last.get(name, _ZERO_TOTALS), totals, seconds)
            for name, totals in snapshot.stages.items()
        }
        self._last, self._last_time = snapshot.stages, now
        processes = self._processes.sample(snapshot.pids, now) if self._processes else ()
        stall = find_stall(snapshot, self._patience)
        return MonitorSample(now - self._start, snapshot.queues, stages, processes, stall)


class _ProcessSampler:
    """Measures the resource use of processes. Remembers their CPU time between samples."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._cpu_meters: dict[int, _CpuMeter] = {}

    def sample(self, pids: Mapping[tuple[str, int], int], now: float) -> tuple[ProcessUse, ...]:
        import psutil  # here, because its import takes longer than many runs that are not monitored

        names = {pid: name for name, pid in pids.items()} | {os.getpid(): (MAIN, 0)}
        self._cpu_meters = {pid: cpu_meter for pid, cpu_meter in self._cpu_meters.items() if pid in names}
        uses = []
        for pid, (stage, worker) in names.items():
            with suppress(psutil.Error):  # it has just exited
                if pid not in self._cpu_meters:
                    self._cpu_meters[pid] = _CpuMeter(psutil.Process(pid), self._start)
                cpu_meter = self._cpu_meters[pid]
                uses.append(ProcessUse(stage, worker, pid, cpu_meter.percent(now), cpu_meter.process.memory_info().rss))
        return tuple(uses)


_TICK = 0.01  # seconds: the unit in which the system counts CPU time, so a rate over a shorter time means nothing


class _CpuMeter:
    """Measures the CPU use of a process since the last measurement.

    `psutil.Process.cpu_percent` cannot do this: its first call returns 0, and a short run has no second one.
    """

    def __init__(self, process: psutil.Process, monitor_start: float) -> None:
        self.process = process
        # The two clocks have different zeros but the same second. The system's start time may be off (Linux knows its
        # boot time only to the second), so it is clamped between the start of the monitor and now.
        age = time.time() - self.process.create_time()
        now = time.monotonic()
        self._last_time = max(monitor_start, now - age) if age > 0 else monitor_start
        self._last_seconds = 0.0

    def percent(self, now: float) -> float:
        times = self.process.cpu_times()
        seconds = times.user + times.system
        share = (seconds - self._last_seconds) / max(now - self._last_time, _TICK)
        self._last_seconds, self._last_time = seconds, now
        return 100 * share


_ZERO_TOTALS = StageTotals(items_in=0, items_out=0, weight_done=0, workers_alive=0)


def _stage_rate(before: StageTotals, now: StageTotals, seconds: float) -> StageRate:
    items = now.items_in or now.items_out
    return StageRate(
        items_per_second=(items - (before.items_in or before.items_out)) / seconds,
        weight_per_second=(now.weight_done - before.weight_done) / seconds,
        items=items,
        weight_done=now.weight_done,
        workers_alive=now.workers_alive,
    )


def _rate(stage: StageRate) -> str:
    if stage.weight_done:
        return f"{_with_prefix(stage.weight_per_second)}B/s"
    return f"{_with_prefix(stage.items_per_second).rstrip()} items/s"


def _with_prefix(number: float) -> str:
    """Return a number with about three digits and a decimal prefix, such as `12.1 M` or `684`."""
    prefixes = iter("kMGT")
    prefix = ""
    while number >= 999.5:
        number /= 1000
        prefix = next(prefixes)
    return f"{number:.3g} {prefix}"
