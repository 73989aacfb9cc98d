"""Counters in shared memory: how much each process has taken, given and finished.

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
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.context import BaseContext
from typing import Any

_ITEMS_IN, _BYTES_IN, _ITEMS_OUT, _BYTES_OUT, _WEIGHT, _BEGAN, _DISMISSED = range(7)
_ROW = 8  # words: a cache line of 64 bytes, so that no two processes write to the same one


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

    def begin(self) -> None:
        """Count this process as one that runs: it has come as far as its own code."""
        self._cells[self._base + _BEGAN] = 1

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
    def began(self) -> bool:
        """Whether the process has begun its own code."""
        return bool(self._cells[self._base + _BEGAN])

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
