"""Counters in shared memory: the items that each process has taken, put and finished, and its current activity.

Every worker owns one row and is the only one that writes to it, so no lock is needed, and a killed process leaves none
locked. Readers add up rows. The depth of a queue is the sum put by its producers less the sum taken by its consumers.

Why plain stores are enough: each counter is an aligned 64-bit word with one writer, so a reader sees an old value or a
new one, never a mixture. A display needs no more than that. The byte bound of a queue depends on order, but there every
store happens before a credit is given, and every load after it is taken (see `channel`).
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any

from .descriptors import Descriptor, anonymous_file

_ITEMS_IN, _BYTES_IN, _ITEMS_OUT, _BYTES_OUT, _WEIGHT, _ACTIVITY, _SINCE = range(7)
_ROW_WORDS = 8  # a cache line of 64 bytes, so that no two processes write to the same one
_WORD_BYTES = 8


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


class Meter:
    """The row of one worker. Once the worker runs, only it may call `set_activity` and the `add_` methods."""

    def __init__(self, cells: MutableSequence[int], row: int) -> None:
        self._cells = cells
        self._base = row * _ROW_WORDS

    def set_activity(self, activity: Activity) -> None:
        """Record a new activity, and the time."""
        # The time first: a reader in between must not combine the new activity with the old time.
        self._cells[self._base + _SINCE] = time.monotonic_ns()
        self._cells[self._base + _ACTIVITY] = activity

    def add_taken(self, size: int) -> None:
        """Count one item of `size` bytes as taken from the input queue."""
        self._cells[self._base + _BYTES_IN] += size
        self._cells[self._base + _ITEMS_IN] += 1

    def add_put(self, size: int) -> None:
        """Count one item of `size` bytes as put on the output queue."""
        self._cells[self._base + _BYTES_OUT] += size
        self._cells[self._base + _ITEMS_OUT] += 1

    def add_finished(self, weight: int) -> None:
        """Count one taken item of this weight as finished."""
        self._cells[self._base + _WEIGHT] += weight

    @property
    def activity(self) -> Activity:
        """The current activity."""
        return Activity(self._cells[self._base + _ACTIVITY])

    @property
    def since(self) -> float:
        """The time of the last `set_activity`, by `time.monotonic`, which all processes share."""
        return self._cells[self._base + _SINCE] / 1e9

    @property
    def items_in(self) -> int:
        """Items taken."""
        return self._cells[self._base + _ITEMS_IN]

    @property
    def items_out(self) -> int:
        """Items put."""
        return self._cells[self._base + _ITEMS_OUT]

    @property
    def weight_done(self) -> int:
        """Total weight of the finished items."""
        return self._cells[self._base + _WEIGHT]


class Meters:
    """The meters of a pipeline: one group for each step (the source, the stages, and the caller at last).

    They are in a mapped file without a name, and are shared with the processes that they are sent to.

    Args:
        sizes: The number of workers of each step.
        file: The file, in other processes.
    """

    def __init__(self, sizes: Sequence[int], file: Descriptor | None = None) -> None:
        length = sum(sizes) * _ROW_WORDS * _WORD_BYTES
        if file is None:
            with anonymous_file() as new:
                new.write(bytes(length))
                new.flush()
                file = Descriptor(os.dup(new.fileno()))
        self._sizes = tuple(sizes)
        self._file = file
        self._cells: Any = memoryview(mmap.mmap(file.fileno(), length)).cast("q")
        self._starts = (0, *accumulate(sizes))

    def __reduce__(self) -> tuple[Any, ...]:
        return Meters, (self._sizes, self._file)

    def start(self) -> None:
        """Record that all workers are starting now."""
        for step in range(len(self._sizes)):
            for meter in self.group(step):
                meter.set_activity(Activity.STARTING)

    def group(self, step: int) -> list[Meter]:
        """Return the meters of the workers of a step."""
        return [self.meter(step, worker) for worker in range(self._sizes[step])]

    def meter(self, step: int, worker: int) -> Meter:
        """Return the meter of a worker."""
        return Meter(self._cells, self._starts[step] + worker)

    def depth(self, step: int) -> QueueDepth:
        """Return the depth of the queue that a step writes to, approximate because rows are read one by one."""
        return QueueDepth(self._difference(step, _ITEMS_OUT, _ITEMS_IN), self.bytes_in_flight(step))

    def bytes_in_flight(self, step: int) -> int:
        """Return the bytes in the queue that a step writes to."""
        return self._difference(step, _BYTES_OUT, _BYTES_IN)

    def _difference(self, step: int, put: int, taken: int) -> int:
        # Consumers first: an item is put before it is taken, so producer counts read later include every taken item.
        total_taken = self._sum(step + 1, taken)
        return max(self._sum(step, put) - total_taken, 0)

    def _sum(self, step: int, column: int) -> int:
        begin, end = (row * _ROW_WORDS for row in self._starts[step : step + 2])
        return sum(self._cells[begin + column : end : _ROW_WORDS])
