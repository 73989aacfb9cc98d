"""Counters in shared memory: what each worker has taken, put and finished, what it does now, and for how long.

Every worker owns one row and is the only one that writes to it, so no lock is needed, and a killed process leaves none
locked. Readers add up rows. The depth of a queue is the sum put by its producers less the sum taken by its consumers.

Why plain stores are enough: each counter is an aligned 64-bit word with one writer, so a reader sees an old value or a
new one, never a mixture. A display needs no more than that.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from .descriptors import Descriptor, anonymous_file

_ROW_WORDS = 16  # two cache lines of 64 bytes, so that no two processes write to the same one
_ROW_BYTES = 8 * _ROW_WORDS


class Activity(IntEnum):
    """The current activity of a worker."""

    STARTING = 0  # it has not reached its own code yet
    WORKING = 1  # in the stage function
    WAITING_FOR_ITEM = 2
    WAITING_FOR_ROOM = 3  # in the queue that it writes to


@dataclass(frozen=True)
class QueueDepth:
    """The contents of a queue: put by its producers, not yet taken by a consumer."""

    items: int
    bytes: int


class Reading(NamedTuple):
    """The words of a worker's row. Times are in nanoseconds, by the clock `time.monotonic_ns`, which processes share.

    `id` is the number given to `Meter.begin`, and 0 unless the worker runs. `cpu` and `peak_memory` are those of a
    worker that has finished, and 0 before. `gauge` is what the worker has given to `set_gauge`. From `starting` on: the
    time spent in each activity before the current one.
    """

    items_in: int
    bytes_in: int
    items_out: int
    bytes_out: int
    weight_done: int
    id: int
    activity: int
    since: int
    cpu: int
    peak_memory: int
    gauge: int
    starting: int
    working: int
    waiting_for_item: int
    waiting_for_room: int

    @property
    def finished(self) -> bool:
        """Whether the worker has finished its work."""
        return self.peak_memory > 0

    def spent(self, now: int) -> list[float]:
        """Return the seconds spent in each activity."""
        spent = list(self[_STARTING:])
        if self.id:
            spent[self.activity] += now - self.since
        return [nanoseconds / 1e9 for nanoseconds in spent]


_ITEMS_IN, _BYTES_IN, _ITEMS_OUT, _BYTES_OUT, _WEIGHT, _ID = range(6)
_ACTIVITY, _SINCE, _CPU, _PEAK, _GAUGE, _STARTING = range(6, 12)


class Meter:
    """The row of one worker, which alone may write to it."""

    def __init__(self, cells: Any) -> None:
        self._cells = cells

    def read(self) -> Reading:
        """Return the row as it is now."""
        return Reading(*self._cells[: len(Reading._fields)])

    def begin(self, number: int) -> None:
        """Record that the worker starts, as the process or the thread of this number."""
        self._cells[_SINCE] = time.monotonic_ns()
        self._cells[_ID] = number

    def end(self, cpu_seconds: float) -> None:
        """Record that the worker has finished its work."""
        self.set_activity(self._cells[_ACTIVITY])  # adds its time
        self._cells[_ID] = 0
        self._cells[_CPU] = round(cpu_seconds * 1e9)
        self._cells[_PEAK] = peak_memory()

    def set_activity(self, activity: int) -> None:
        """Record a new activity, and the time that the last one has taken."""
        cells, now = self._cells, time.monotonic_ns()
        cells[_STARTING + cells[_ACTIVITY]] += now - cells[_SINCE]
        # The time first: a reader in between must not combine the new activity with the old time.
        cells[_SINCE] = now
        cells[_ACTIVITY] = activity

    def add_taken(self, size: int) -> None:
        """Count one item of `size` bytes as taken from the input queue."""
        self._cells[_BYTES_IN] += size
        self._cells[_ITEMS_IN] += 1

    def add_put(self, size: int) -> None:
        """Count one item of `size` bytes as put on the output queue."""
        self._cells[_BYTES_OUT] += size
        self._cells[_ITEMS_OUT] += 1

    def add_finished(self, weight: int) -> None:
        """Count one taken item of this weight as finished."""
        self._cells[_WEIGHT] += weight

    def set_gauge(self, value: int) -> None:
        """Record the number that the worker shows."""
        self._cells[_GAUGE] = value


class Meters:
    """The meters of a pipeline, in a mapped file without a name, shared with the processes that they are sent to.

    Args:
        sizes: The number of workers of each step: of the source, the stages, and the caller at last.
        file: The file, in other processes.

    Attributes:
        steps: The meters of the workers of each step.
    """

    def __init__(self, sizes: Sequence[int], file: Descriptor | None = None) -> None:
        length = sum(sizes) * _ROW_BYTES
        if file is None:
            file = anonymous_file()
            os.truncate(file.fileno(), length)
        self._sizes = tuple(sizes)
        self._file = file
        self._cells: Any = memoryview(mmap.mmap(file.fileno(), length)).cast("q")
        self._starts = [_ROW_WORDS * start for start in (0, *accumulate(sizes))]
        rows = [Meter(self._cells[start : start + _ROW_WORDS]) for start in range(0, len(self._cells), _ROW_WORDS)]
        self.steps = [rows[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        return Meters, (self._sizes, self._file)

    def clear(self) -> None:
        """Record that no worker runs any more: those that have not finished were killed."""
        for start in range(0, len(self._cells), _ROW_WORDS):
            self._cells[start + _ID] = 0

    def depth(self, step: int) -> QueueDepth:
        """Return the depth of the queue that a step writes to, approximate because rows are read one by one."""
        # Consumers first: an item is put before it is taken, so producer counts read later include every taken item.
        items, size = self._sum(step + 1, _ITEMS_IN), self._sum(step + 1, _BYTES_IN)
        return QueueDepth(max(self._sum(step, _ITEMS_OUT) - items, 0), max(self._sum(step, _BYTES_OUT) - size, 0))

    def _sum(self, step: int, column: int) -> int:
        begin, end = self._starts[step : step + 2]
        return sum(self._cells[begin + column : end : _ROW_WORDS])


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes.

    On Linux the figure comes from /proc: `ru_maxrss` survives exec, so a spawned process would report its parent's
    peak.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):
        import resource  # not on every platform

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
