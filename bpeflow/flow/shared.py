"""What the processes of a run share: kernel objects without names, and counters in shared memory.

The kernel frees an object without a name with the last process that has it open.

The counters, or *meters*, hold what each worker has taken, put and finished, what it does now, and for how long. Every
worker is the only writer of a row of aligned 64-bit words, so a reader sees an old value or a new one, never a mixture,
without a lock that a killed process could leave locked. Readers add up rows. The depth of a queue is the sum put by its
producers less the sum taken by its consumers.
"""

from __future__ import annotations

import _thread
import ctypes
import mmap
import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from io import FileIO
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from weakref import ref


class EndOfStreamError(Exception):
    """All writers of a pipe have exited, and all that they wrote has been read."""


class Descriptor(FileIO):
    """A file descriptor that this object owns: it is closed with the last reference to it.

    No Python code runs then: Ctrl-C in a finalizer would be lost, as Python discards exceptions there. Nor does any
    between the system call and its owner (`owned`, `pipe`): Ctrl-C there would leave the descriptor open.
    """

    #: Hides an attribute that lets `FileIO` warn when it is closed with its last reference.
    _finalizing = False


#: The descriptors that this process has made, by number; some are closed by now.
made_here: dict[int, ref[Descriptor]] = {}


def open_here() -> list[Descriptor]:
    """Return the open descriptors of this process."""
    made = [reference() for reference in list(made_here.values())]
    return [descriptor for descriptor in made if descriptor is not None and not descriptor.closed]


def _close_here() -> None:
    for descriptor in open_here():
        descriptor.close()


# A child that other code forks would keep the readers of a pipe waiting for an end of file.
os.register_at_fork(after_in_child=_close_here)


def _own(numbers: Iterator[Iterable[int]]) -> tuple[Descriptor, ...]:
    """Take the next descriptors, and own them, in a single call of compiled code."""
    made = next(map(tuple, map(partial(map, Descriptor), numbers)))
    for descriptor in made:
        made_here[descriptor.fileno()] = ref(descriptor)  # in place of an earlier one, which is closed
    return made


def owned(call: Callable[..., int], *arguments: Any) -> Descriptor:
    """Return the descriptor that a system call returns. Raises as the call does."""
    [descriptor] = _own(zip(iter(partial(call, *arguments), -1), strict=False))
    return descriptor


def pipe() -> tuple[Descriptor, Descriptor]:
    """Return the reading and the writing end of a new pipe."""
    reader, writer = _own(iter(os.pipe, ()))
    return reader, writer


def anonymous_file() -> Descriptor:
    """Return a new file that has no name, in memory where the system supports it."""
    if hasattr(os, "memfd_create"):
        return owned(os.memfd_create, "bpeflow")
    import tempfile  # slow to import

    with tempfile.TemporaryFile() as file:
        return owned(os.dup, file.fileno())


class Credits:
    """Credits that processes take and give back: bytes in a pipe. One credit is a lock, used as a context manager."""

    def __init__(self, count: int) -> None:
        self._reader, self._writer = pipe()
        self.give(min(count, select.PIPE_BUF))  # more might not fit into the pipe of a user who has many

    def take(self) -> None:
        """Take a credit, or wait until there is one."""
        os.read(self._reader.fileno(), 1)

    def give(self, count: int = 1) -> None:
        """Give credits back. Never blocks: what was taken has room."""
        os.write(self._writer.fileno(), bytes(count))

    __enter__ = take

    def __exit__(self, *exception: object) -> None:
        self.give()


def write_all(writer: Descriptor, data: bytes | bytearray | memoryview) -> None:
    """Write all of a buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(writer.fileno(), rest) :]


def read_exactly(reader: Descriptor, size: int, wait: Callable[[], None] | None = None) -> bytearray:
    """Read bytes from a pipe. `wait` is called before each read, if given. Raises `EndOfStreamError`."""
    buffer = bytearray(size)
    rest = memoryview(buffer)
    while rest:
        if wait:
            wait()
        count = os.readv(reader.fileno(), [rest])
        if not count:
            raise EndOfStreamError
        rest = rest[count:]
    return buffer


class Activity(IntEnum):
    """The current activity of a worker."""

    STARTING = 0  # it has not reached its own code yet
    WORKING = 1  # in the stage function
    WAITING_FOR_AN_ITEM = 2
    WAITING_FOR_ROOM = 3  # in the queue that it writes to


@dataclass(frozen=True)
class QueueDepth:
    """The contents of a queue: put by its producers, not yet taken by a consumer."""

    items: int
    bytes: int


class Meter(ctypes.Structure):
    """The row of one worker. Times are in nanoseconds, by the clock `time.monotonic_ns`."""

    items_in: int
    bytes_in: int
    items_out: int
    bytes_out: int
    weight_done: int
    gauge: int  # given to `set_gauge`
    pid: int  # the worker's process; 0 unless it runs
    activity: int
    since: int  # the beginning of the activity
    cpu: int  # 0 until the worker has finished
    peak_memory: int  # in bytes; 0 until the worker has finished
    past: Any  # the time spent in each activity until `since`

    _fields_ = (
        *((name, ctypes.c_int64) for name in list(__annotations__)[:-1]),
        ("past", ctypes.c_int64 * len(Activity)),
        ("padding", ctypes.c_int64),  # to two cache lines, so that no two processes write to the same one
    )

    @property
    def finished(self) -> bool:
        """Whether the worker has finished its work."""
        return self.peak_memory > 0

    def spent(self, now: int) -> list[float]:
        """Return the seconds spent in each activity."""
        spent = list(self.past)
        if self.pid:
            spent[self.activity] += now - self.since
        return [nanoseconds / 1e9 for nanoseconds in spent]

    def begin(self) -> None:
        """Record that the worker starts, in this process."""
        self.since = time.monotonic_ns()
        self.pid = os.getpid()

    def end(self, cpu_seconds: float) -> None:
        """Record that the worker has finished its work."""
        self.set_activity(self.activity)  # adds its time
        self.pid = 0
        self.cpu = round(cpu_seconds * 1e9)
        self.peak_memory = peak_memory()

    def set_activity(self, activity: int) -> None:
        """Record a new activity, and the time that the last one has taken."""
        now = time.monotonic_ns()
        self.past[self.activity] += now - self.since
        # The time first: a reader in between must not combine the new activity with the old time.
        self.since = now
        self.activity = activity

    def add_taken(self, size: int) -> None:
        """Count one item of `size` bytes as taken from the input queue."""
        self.bytes_in += size
        self.items_in += 1

    def add_put(self, size: int) -> None:
        """Count one item of `size` bytes as put on the output queue."""
        self.bytes_out += size
        self.items_out += 1


class Meters:
    """The meters of a pipeline, in a mapped file without a name, shared with the processes that they are sent to.

    `sizes` and `steps` have the number of workers, and their meters, for each step: the source, the stages, the caller.
    `workers` has the step of each worker, and its number within the step.
    """

    def __init__(self, sizes: Sequence[int], file: Descriptor | None = None) -> None:
        length = sum(sizes) * ctypes.sizeof(Meter)
        if file is None:
            file = anonymous_file()
            os.truncate(file.fileno(), length)
        self._sizes = tuple(sizes)
        self._file = file
        rows = list((Meter * sum(sizes)).from_buffer(mmap.mmap(file.fileno(), length)))
        self.steps = [rows[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]
        self.workers = [(step, number) for step, size in enumerate(sizes[:-1]) for number in range(size)]

    def __reduce__(self) -> tuple[Any, ...]:
        return Meters, (self._sizes, self._file)

    def clear(self) -> None:
        """Record that no worker runs any more: those that have not finished were killed."""
        for meters in self.steps:
            for meter in meters:
                meter.pid = 0

    def depth(self, step: int) -> QueueDepth:
        """Return the depth of the queue that a step writes to, approximate because rows are read one by one."""
        # Consumers first: an item is put before it is taken, so producer counts read later include every taken item.
        producers, consumers = self.steps[step : step + 2]
        items, size = sum(meter.items_in for meter in consumers), sum(meter.bytes_in for meter in consumers)
        items = sum(meter.items_out for meter in producers) - items
        size = sum(meter.bytes_out for meter in producers) - size
        return QueueDepth(max(items, 0), max(size, 0))


#: Threads that `start_threads` has started and that may be running. `Thread` has a finalizer in Python, in which Ctrl-C
#: would be lost; so it must not be the main thread that drops the last reference to one.
_started: list[threading.Thread] = []


def start_threads(threads: Sequence[threading.Thread]) -> None:
    """Start threads, from a thread that Ctrl-C does not interrupt. Raises `RuntimeError` if there are too many.

    `Thread.start` shares an `Event` with the new thread, which may wait for ever if that is left locked. Threads that
    the caller takes out of the sequence, because Ctrl-C ends the run, are not started.
    """

    def start() -> None:
        _started[:] = filter(threading.Thread.is_alive, _started)
        for thread in threads:
            _started.append(thread)  # one that is never started would keep its run alive
            thread.start()

    uninterrupted(start)


def uninterrupted(call: Callable[[], None]) -> None:
    """Make a call in a thread that Ctrl-C does not interrupt, and wait for its end. Raises what the call raises."""
    ended: SimpleQueue[Exception | None] = SimpleQueue()

    def run() -> None:
        error: Exception | None = None
        try:
            call()
        except Exception as raised:
            error = raised
        for _ in range(2):  # Ctrl-C may come when the first has been taken
            ended.put(error)

    _thread.start_new_thread(run, ())
    try:
        error = ended.get()
    except BaseException:
        ended.get()
        raise
    if error is not None:
        raise error


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes."""
    try:  # first, because `ru_maxrss` survives exec, so a spawned process would report its parent's peak
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):  # not on Linux
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
