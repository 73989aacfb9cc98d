"""Progress as plain lines."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING

from bpeflow._util.machine import available_cores
from bpeflow._util.text import format_size
from bpeflow.progress.observer import Observer

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


class PlainObserver(Observer):
    """Prints a line at an interval, for log files and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._started: dict[str, tuple[float, int]] = {}
        self._printed: dict[str, float] = {}
        self._share = ""

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("counting", counted_bytes, total_bytes)

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("encoding", encoded_bytes, total_bytes)

    def decoding(self, decoded_bytes: int, total_bytes: int | None) -> None:
        self._print_bytes("decoding", decoded_bytes, total_bytes)

    def learning(self, learned: int, wanted: int) -> None:
        if (since := self._due("learning", learned, learned >= wanted)) is not None:
            elapsed, new = since
            self._print(
                f"learning: {learned:,} of {wanted:,} merges{_comma(time_left(elapsed, new, wanted - learned))}"
            )

    def monitored(self, sample: MonitorSample) -> None:
        parts = [f"{time.strftime('%H:%M:%S')} {sample.line()}", self._share, bottleneck_line(sample)]
        self._print(" | ".join(filter(None, parts)))

    def _print_bytes(self, what: str, done: int, total: int | None) -> None:
        elapsed, new = self._since_first(what, done)
        left = "" if total is None else _comma(time_left(elapsed, new, total - done))
        self._share = f"{done / total:.0%}{left}" if total else ""
        if self._due(what, done, total is not None and done >= total) is not None:
            rate = f", {format_size(new / elapsed)}/s" if elapsed > 0.05 else ""
            of_all = "" if total is None else f" of {format_size(total)}"
            self._print(f"{what}: {format_size(done)}{of_all}{rate}{left}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _since_first(self, what: str, done: int) -> tuple[float, int]:
        """Return the seconds and the work since the first report of an activity: resumed work was done before it."""
        now = time.monotonic()
        started, at_first = self._started.setdefault(what, (now, done))
        return now - started, done - at_first

    def _due(self, what: str, done: int, finished: bool) -> tuple[float, int] | None:
        """Return `_since_first` if a line is due, else None. The end of an activity is reported once."""
        since = self._since_first(what, done)
        now = time.monotonic()
        last = self._printed.setdefault(what, now)
        if last == float("inf") or (not finished and now - last < PLAIN_INTERVAL):
            return None
        self._printed[what] = float("inf") if finished else now
        return since


def time_left(elapsed: float, done: float, left: float) -> str:
    """Return how long `left` will take if `done` took `elapsed` seconds: `2:05 left`; nothing if it is unknown."""
    if done <= 0 or left <= 0:
        return ""
    minutes, seconds = divmod(round(elapsed * left / done), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"


def _comma(text: str) -> str:
    return f", {text}" if text else ""


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
    remedy = f"all {cores} cores are busy" if busy >= _ALL_CORES * cores else _REMEDIES.get(stage)
    return f"bottleneck: {stage}" + (f", {remedy}" if remedy else "")
