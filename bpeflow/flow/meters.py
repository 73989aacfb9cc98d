"""Counters in shared memory: how much each process has taken, given and finished, and what it is doing.

Every process owns one row and is the only one that writes to it (but for one word, by which the main process dismisses
it), so no lock is needed and a killed process leaves none behind. Whoever wants to know adds rows up. The depth of a
queue is what its producers have put less what its consumers have taken, which also works on macOS, where
``Queue.qsize`` does not.

Why plain stores are enough: each counter is an aligned 64-bit word with one writer, so a reader sees an old value or
a new one, never a mixture. For display that is all one needs. The byte bound of a queue (`channel.Bounds`) does rely on
order: there every store happens before the release, and every load after the acquisition, of one and the same
semaphore.
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

_ITEMS_IN, _BYTES_IN, _ITEMS_OUT, _BYTES_OUT, _WEIGHT, _ACTIVITY, _SINCE, _DISMISSED = range(8)
_ROW = 8  # words: a cache line of 64 bytes, so that no two processes write to the same one


class Activity(IntEnum):
    """What a process is doing."""

    STARTING = 0  # it has not come as far as its own code
    WORKING = 1  # in the stage function
    WAITING_FOR_ITEM = 2
    WAITING_FOR_ROOM = 3  # in the queue that it writes to
    HANDING_ON = 4  # the function has ended; what it has put is on its way into the pipe


@dataclass(frozen=True)
class QueueDepth:
    """What lies in a queue: put by its producers, not yet taken by a consumer."""

    items: int
    bytes: int


class Meter:
    """The row of one process. Only that process may call the methods that count."""

    def __init__(self, cells: MutableSequence[int], row: int) -> None:
        self._cells = cells
        self._base = row * _ROW

    def turn_to(self, activity: Activity) -> None:
        """Note what the process does from now on."""
        # The time first: whoever reads in between shall not take a new activity for an old one.
        self._cells[self._base + _SINCE] = time.monotonic_ns()
        self._cells[self._base + _ACTIVITY] = activity

    def take(self, size: int) -> None:
        """Count one item of ``size`` bytes as taken from the queue."""
        self._cells[self._base + _BYTES_IN] += size
        self._cells[self._base + _ITEMS_IN] += 1

    def give(self, size: int) -> None:
        """Count one item of ``size`` bytes as put on the queue."""
        self._cells[self._base + _BYTES_OUT] += size
        self._cells[self._base + _ITEMS_OUT] += 1

    def finish(self, weight: int) -> None:
        """Count one taken item of this weight as finished."""
        self._cells[self._base + _WEIGHT] += weight

    def dismiss(self) -> None:
        """For the main process: say that the next thing the worker hears of it is no sign of its death."""
        self._cells[self._base + _DISMISSED] = 1

    @property
    def dismissed(self) -> bool:
        """Whether the main process, which lives, wants this one to end."""
        return bool(self._cells[self._base + _DISMISSED])

    @property
    def activity(self) -> Activity:
        """What the process is doing."""
        return Activity(self._cells[self._base + _ACTIVITY])

    @property
    def since(self) -> float:
        """When it began to do that, or put an item last: by `time.monotonic`, which all processes share."""
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
        """Weight of the items that are finished."""
        return self._cells[self._base + _WEIGHT]


def shared_meters(context: BaseContext, processes: Sequence[int]) -> list[list[Meter]]:
    """Meters in shared memory for groups of so many processes each."""
    cells: Any = context.RawArray(ctypes.c_int64, sum(processes) * _ROW)
    return _grouped(cells, processes)


def local_meters(processes: Sequence[int]) -> list[list[Meter]]:
    """Meters of the same shape that only this process can see."""
    return _grouped([0] * (sum(processes) * _ROW), processes)


def _grouped(cells: MutableSequence[int], processes: Sequence[int]) -> list[list[Meter]]:
    rows = count()
    return [[Meter(cells, next(rows)) for _ in range(group)] for group in processes]


def depth(producers: Iterable[Meter], consumers: Iterable[Meter]) -> QueueDepth:
    """What lies between these producers and these consumers, as nearly as rows can be read one by one."""
    consumers = list(consumers)
    # Consumers first: what they took was put before, so a producer's count that is read later covers it.
    items = -sum(meter.items_in for meter in consumers)
    size = -sum(meter.bytes_in for meter in consumers)
    for meter in producers:
        items += meter.items_out
        size += meter.bytes_out
    return QueueDepth(max(items, 0), max(size, 0))
