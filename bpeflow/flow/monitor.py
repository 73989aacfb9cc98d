"""Watches a running pipeline: samples its queues, rates and processes at an interval. It observes and never decides.

How to read a sample: a queue that is full means that the stage behind it is the slow one; a queue that is empty, that
the stage before it is.
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
from .stalls import Stall, StallLog, find_stalls

if TYPE_CHECKING:
    import psutil


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageRate:
    """A stage since the last sample, and in all. The source has no inputs: its items are those that it put out."""

    items_per_second: float
    weight_per_second: float
    items: int
    weight_done: int
    workers_alive: int


@dataclass(frozen=True)
class ProcessUse:
    """What one process uses now; ``cpu_percent`` is since the last sample (or its own start, or that of the monitor, if
    later), 100 for one full core.
    """

    stage: str
    worker: int
    pid: int
    cpu_percent: float
    rss_bytes: int


@dataclass(frozen=True)
class MonitorSample:
    """One look at a pipeline, ``elapsed`` seconds after the monitor began.

    The main process is stage "main". It is the only one left in the last sample of a run that has ended: what the
    workers used in all is in `Pipeline.reports`.
    """

    elapsed: float
    queues: Mapping[str, QueueDepth]
    stages: Mapping[str, StageRate]
    processes: tuple[ProcessUse, ...]
    stalls: tuple[Stall, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as plain dicts, lists and numbers, for JSON."""
        return asdict(self, dict_factory=_plain_dict)

    def line(self) -> str:
        """Return the sample as one line of text.

        For example ``chunk_queue: 684, counter_queue: 3, merged_queue: 0 | chunk reader: 190 items/s, counter: 12.1
        MB/s | CPU 201 %, 1.3 GB``: items in each queue, rates of stages (weight is bytes by convention; a stage without
        ``weigh`` shows items), and processor time and memory of all processes together. Stages that make no progress
        follow: ``| counter: no progress for 12 s (1 of 4 workers)``.
        """
        queues = ", ".join(f"{name}: {depth.items}" for name, depth in self.queues.items())
        rates = ", ".join(f"{name}: {_rate(stage)}" for name, stage in self.stages.items())
        cpu = sum(process.cpu_percent for process in self.processes)
        rss = sum(process.rss_bytes for process in self.processes)
        stalls = "".join(f" | {stall.line()}" for stall in self.stalls)
        return f"{queues} | {rates} | CPU {cpu:.0f} %, {_human(rss)}B{stalls}"


_PATIENCE = 10.0  # seconds: less would tell of every large item that takes its time


def _plain_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.name.lower() if isinstance(value, Activity) else value for key, value in pairs}


def _ignore(sample: MonitorSample) -> None:
    pass


class Monitor:
    """Samples a pipeline every ``interval`` seconds, and once at the end; hands each sample to ``on_sample``.

    A context manager around the loop over the results::

        with Monitor(pipeline, interval=10.0, on_sample=lambda sample: print(sample.line())):
            for item in pipeline.run():
                ...

    ``on_sample`` runs in the monitor's thread. What goes wrong there is logged and does not touch the run.
    ``processes=False`` leaves the processes out of the samples, and does without psutil. ``patience``: the seconds
    without progress that make a stall; by default the interval, but no less than 10 s.
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
        self._sampler = _Sampler(pipeline.snapshot(), processes, patience or max(interval, _PATIENCE))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow monitor", daemon=True)

    def __enter__(self) -> Monitor:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Take the last sample and end."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(MemoryError):  # for the wait itself; whoever waits for the results hears of it soon enough
            while not self._ended.wait(self._interval):
                self._sample()
            self._sample()

    def _sample(self) -> None:
        try:
            self._on_sample(self._sampler.sample(self._pipeline.snapshot()))
        except (MemoryError, OSError) as error:  # no fault of anyone's code, so nobody need see where it was
            _log.warning("the monitor could not take or deliver a sample: %s", str(error) or type(error).__name__)
        except Exception:
            _log.warning("the monitor could not take or deliver a sample", exc_info=True)


def stall_watch(pipeline: Pipeline, patience: float = 60.0) -> Monitor:
    """Return a monitor that only says in the log when a stage has made no progress for so many seconds."""
    log = StallLog()
    return Monitor(pipeline, patience / 6, lambda sample: log.hear(sample.stalls), processes=False, patience=patience)


class _Sampler:
    """Turns snapshots into samples: remembers the last one, to tell rates."""

    def __init__(self, snapshot: Snapshot, processes: bool, patience: float) -> None:
        self._patience = patience
        self._began = self._last_time = time.monotonic()
        self._last: Mapping[str, StageTotals] = {}
        self._uses = _Uses(self._began) if processes else None
        if self._uses:
            self._uses.of(snapshot.pids, self._began)  # for the processor time that they have had until now

    def sample(self, snapshot: Snapshot) -> MonitorSample:
        now = time.monotonic()
        seconds = max(now - self._last_time, 1e-9)
        stages = {
            name: _stage_rate(self._last.get(name, _NOTHING), totals, seconds)
            for name, totals in snapshot.stages.items()
        }
        self._last, self._last_time = snapshot.stages, now
        uses = self._uses.of(snapshot.pids, now) if self._uses else ()
        stalls = tuple(find_stalls(snapshot, self._patience))
        return MonitorSample(now - self._began, snapshot.queues, stages, uses, stalls)


class _Uses:
    """What the processes use: remembers how much processor time they have had."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._processors: dict[int, _ProcessorTime] = {}

    def of(self, pids: Mapping[tuple[str, int], int], now: float) -> tuple[ProcessUse, ...]:
        import psutil  # here, for its import takes longer than much of what is not monitored

        names = {pid: name for name, pid in pids.items()} | {os.getpid(): (MAIN, 0)}
        self._processors = {pid: processor for pid, processor in self._processors.items() if pid in names}
        uses = []
        for pid, (stage, worker) in names.items():
            with suppress(psutil.Error):  # it has just gone
                if pid not in self._processors:
                    self._processors[pid] = _ProcessorTime(psutil.Process(pid), self._began)
                processor = self._processors[pid]
                uses.append(ProcessUse(stage, worker, pid, processor.percent(now), processor.process.memory_info().rss))
        return tuple(uses)


_TICK = 0.01  # seconds, in which the system counts processor time: over less than one, a rate means nothing


class _ProcessorTime:
    """Tells how busy a process has been since it was last asked.

    Not left to ``psutil.Process.cpu_percent``, which says 0 at its first call: that is all that a short run has.
    """

    def __init__(self, process: psutil.Process, began: float) -> None:
        self.process = process
        # The two clocks do not share a zero, but a second is one for both. Where the system's notion of the start is
        # off (Linux knows when it was booted to the second), it is at least not before the monitor or after now.
        age = time.time() - self.process.create_time()
        now = time.monotonic()
        self._last_time = max(began, now - age) if age > 0 else began
        self._last_seconds = 0.0

    def percent(self, now: float) -> float:
        times = self.process.cpu_times()
        seconds = times.user + times.system
        share = (seconds - self._last_seconds) / max(now - self._last_time, _TICK)
        self._last_seconds, self._last_time = seconds, now
        return 100 * share


_NOTHING = StageTotals(items_in=0, items_out=0, weight_done=0, workers_alive=0)


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
        return f"{_human(stage.weight_per_second)}B/s"
    return f"{_human(stage.items_per_second).rstrip()} items/s"


def _human(number: float) -> str:
    """Return a number with three digits or so and a decimal prefix: ``12.1 M``, ``684``."""
    prefixes = iter("kMGT")
    prefix = ""
    while number >= 999.5:
        number /= 1000
        prefix = next(prefixes)
    return f"{number:.3g} {prefix}"
