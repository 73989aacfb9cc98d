"""`Observer`, the one protocol of progress, and `PlainObserver`, which prints it as lines."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from bpeflow._util.machine import available_cores
from bpeflow._util.text import format_size

if TYPE_CHECKING:
    from bpeflow.flow import MonitorSample

#: Seconds between two lines: short enough to see that the run is alive, long enough for a log file.
PLAIN_INTERVAL = 10.0

#: What helps if a stage is the slow one. `-c` and `-m` are flags for `num_counter` and `num_merger`.
_REMEDIES = {
    "chunk reader": "the input is slow to read",
    "stream reader": "split large files: they are read in parallel",
    "counter": "add -c",
    "merger": "add -m",
}

#: Share of all cores that counts as all of them: more workers would not help.
_ALL_CORES = 0.9


class Observer:
    """Progress callbacks. The base class ignores them; override those you want.

    Totals are None where they are unknown, as for standard input. Callbacks run on the calling process, some of them
    on another thread, and should return quickly.

    Attributes:
        sample_interval: seconds between two calls of `monitored`, unless the setting `monitor.interval` is given.

    >>> class Dots(Observer):
    ...     def learning(self, learned, wanted):
    ...         print(f"{learned} of {wanted}")
    >>> from bpeflow import learn_merges
    >>> merges = learn_merges({"low": 5, "lower": 2}, vocab_size=260, observer=Dots())
    0 of 3
    3 of 3
    """

    sample_interval: float = 10.0

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of input counted so far."""

    def learning(self, learned: int, wanted: int) -> None:
        """Report merges learned so far."""

    def merged(self, merges: int, left: bytes, right: bytes, count: int) -> None:
        """Report the newest of the merges learned so far and its count, about ten times per second."""

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of input encoded so far."""

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        """Report bytes of a token file decoded so far."""

    def working(self, sample: MonitorSample) -> None:
        """Receive the state of the counting pipeline twice per second: queues, rates and busy workers.

        The gauge of the counters is the number of distinct pre-tokens found so far by one of them. What each
        process uses is left out; `monitored` has it.
        """

    def monitored(self, sample: MonitorSample) -> None:
        """Receive a sample of the queue monitor (`monitor.enabled`)."""


@dataclass
class _Activity:
    """When an activity began, how much an earlier run had done by then, and when its last line was printed."""

    started: float
    at_first: int
    printed: float
    is_finished: bool = False


class ActivityObserver(Observer, ABC):
    """An observer that treats all activities alike."""

    @abstractmethod
    def advance_to(self, name: str, done: int, total: int | None) -> None: ...

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self.advance_to("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.advance_to("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self.advance_to("decoding", decoded_bytes, total_bytes)

    def learning(self, learned: int, wanted: int) -> None:
        self.advance_to("learning", learned, wanted)


class PlainObserver(ActivityObserver):
    """Prints a line at an interval, for log files and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._activities: dict[str, _Activity] = {}
        self._share = ""

    def monitored(self, sample: MonitorSample) -> None:
        parts = [f"{time.strftime('%H:%M:%S')} {sample.line()}", self._share, bottleneck_line(sample)]
        self._print(" | ".join(filter(None, parts)))

    def advance_to(self, name: str, done: int, total: int | None) -> None:
        """Print a line if one is due: at an interval, and once at the end of the activity."""
        now = time.monotonic()
        activity = self._activities.setdefault(name, _Activity(now, done, now))
        elapsed, new = now - activity.started, done - activity.at_first
        amount, rate, left = describe_amount(name, done, total, new / elapsed if elapsed > 0 else 0.0)
        self._share = ", ".join(filter(None, [f"{done / total:.0%}", left])) if total else ""
        ends = total is not None and done >= total
        if activity.is_finished or not (ends or now - activity.printed >= PLAIN_INTERVAL):
            return
        activity.printed, activity.is_finished = now, ends
        self._print(f"{name}: {', '.join(filter(None, [amount, rate, left]))}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def describe_amount(name: str, done: float, total: float | None, per_second: float) -> tuple[str, str, str]:
    """Return how much of an activity is done, how fast, and the time left: `2:05 left`; '' for what is unknown."""
    merges = name == "learning"
    form = "{:,.0f} merges".format if merges else format_size
    amount = form(done) if total is None else f"{form(done).removesuffix(' merges')} of {form(total)}"
    rate = "" if merges or per_second <= 0 else f"{format_size(per_second)}/s"
    if total is None or per_second <= 0 or done >= total:
        return amount, rate, ""
    minutes, seconds = divmod(round((total - done) / per_second), 60)
    hours, minutes = divmod(minutes, 60)
    return amount, rate, f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"


def bottleneck_line(sample: MonitorSample) -> str:
    """Return the slow stage with what helps, as in `bottleneck: counter, add -c`; nothing if no stage is."""
    stage = sample.bottleneck
    if stage is None:
        return ""
    cores = available_cores()
    if sample.processes:
        busy = sum(process.cpu_percent for process in sample.processes) / 100
    else:
        busy = sum(rate.workers_busy for rate in sample.stages.values())
    workers = sample.stages[stage].workers if stage in sample.stages else cores
    remedy = _REMEDIES.get(stage) if workers < cores else None  # more workers than cores do not help
    if busy >= _ALL_CORES * cores:
        remedy = f"all {cores} cores are busy"
    return f"bottleneck: {stage}" + (f", {remedy}" if remedy else "")
