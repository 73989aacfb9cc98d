"""Counters in shared memory: the items that each process has taken, put and finished, and its current activity.

Every process owns one row and is the only one that writes to it, so no lock is needed and a killed process leaves none
locked. (The one exception is a word that the main process sets, see `Meter.disable_cleanup`.) Readers add up rows. The
depth of a queue is the sum put by its producers less the sum taken by its consumers. That works on macOS too, where
`Queue.qsize` does not.

Why plain stores are enough: each counter is an aligned 64-bit word with one writer, so a reader sees an old value or a
new one, never a mixture. A display needs no more than that. The byte bound of a queue (`channel.Bounds`) does depend on
order, but there every store happens before the release, and every load after the acquisition, of the same semaphore.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from multiprocessing.context import BaseContext
from typing import Any

_ITEMS_IN, _BYTES_IN, _ITEMS_OUT, _BYTES_OUT, _WEIGHT, _ACTIVITY, _SINCE, _CLEANUP_DISABLED = range(8)
_ROW_WORDS = 8  # a cache line of 64 bytes, so that no two processes write to the same one


class Activity(IntEnum):
    """The current activity of a process."""

    STARTING = 0  # it has not reached its own code yet
    WORKING = 1  # in the stage function
    WAITING_FOR_ITEM = 2
    WAITING_FOR_ROOM = 3  # in the queue that it writes to
    HANDING_ON = 4  # the function has ended, and the items that it put are being flushed to the pipe


@dataclass(frozen=True)
class QueueDepth:
    """The contents of a queue: put by its producers, not yet taken by a consumer."""

    items: int
    bytes: int


class Meter:
    """The row of one process. Once the process runs, only it may call `set_activity` and the `add_` methods."""

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

    def disable_cleanup(self) -> None:
        """Prevent the worker from removing folders when it exits; called by the main process, which will do it."""
        self._cells[self._base + _CLEANUP_DISABLED] = 1

    @property
    def cleanup_disabled(self) -> bool:
        """Whether the main process is alive and ends this worker on purpose."""
        return bool(self._cells[self._base + _CLEANUP_DISABLED])

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
    def bytes_in(self) -> int:
        """Pickled bytes taken."""
        return self._cells[self._base + _BYTES_IN]

    @property
    def items_out(self) -> int:
        """Items put."""
        return self._cells[self._base + _ITEMS_OUT]

    @property
    def bytes_out(self) -> int:
        """Pickled bytes put."""
        return self._cells[self._base + _BYTES_OUT]

    @property
    def weight_done(self) -> int:
        """Total weight of the finished items."""
        return self._cells[self._base + _WEIGHT]


def shared_meters(context: BaseContext, group_sizes: Sequence[int]) -> list[list[Meter]]:
    """Return meters in shared memory, in groups of these sizes."""
    cells: Any = context.RawArray(ctypes.c_int64, sum(group_sizes) * _ROW_WORDS)
    return _grouped(cells, group_sizes)


def local_meters(group_sizes: Sequence[int]) -> list[list[Meter]]:
    """Return meters that only this process can see, in groups of these sizes."""
    return _grouped([0] * (sum(group_sizes) * _ROW_WORDS), group_sizes)


def _grouped(cells: MutableSequence[int], group_sizes: Sequence[int]) -> list[list[Meter]]:
    rows = count()
    return [[Meter(cells, next(rows)) for _ in range(size)] for size in group_sizes]


def queue_depth(producers: Iterable[Meter], consumers: Iterable[Meter]) -> QueueDepth:
    """Return the depth of the queue between these processes, approximate because rows are read one by one."""
    consumers = list(consumers)
    # Consumers first: an item must be put before it is taken, so producer counts read later include every taken item.
    items = -sum(meter.items_in for meter in consumers)
    size = -sum(meter.bytes_in for meter in consumers)
    for meter in producers:
        items += meter.items_out
        size += meter.bytes_out
    return QueueDepth(max(items, 0), max(size, 0))
