"""Bounded queues between processes, made of pipes, and the other kernel objects that they share.

A kernel pipe already is a bounded queue that wakes up its readers and writers. A queue of a pipeline is one pipe, or
one for each consumer if items are routed, whose size bounds the bytes in flight, with

* a lock for the producers and one for the consumers of a shared pipe, because a large message takes several writes;
* credits, one for each item that may be in flight: a producer takes one, and the item's consumer gives it back.

End of stream is end of file: the kernel reports it when all writers have exited and all that they wrote has been read.
(`multiprocessing.Queue` has a feeder thread in each producer, so the order in which items of *different* processes come
out is not the order in which `put` returned: a sentinel of one process can overtake the data of another.
tests/flow/test_flow_pipes.py shows it. Hence no sentinels.)

A killed process keeps the locks and credits that it holds, and an item that it wrote only in part looks like the end of
the stream. So the whole run must end. Nothing has a name: the kernel frees it with the last process that has it open.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

if TYPE_CHECKING:
    from .meters import Meter
    from .stage import QueueSpec

#: Upper bound on the size of a pipe. Larger: fewer switches between the processes when a large item is sent. This is
#: the most that Linux allows by default.
_MAX_PIPE_BYTES = 1 << 20

#: Smaller messages are copied into one write, so that their readers wake up once. Larger ones are written in parts.
_SMALL = 1 << 16

#: Before each message: the size of the pickle, and the number of the buffers whose sizes follow.
_HEADER = struct.Struct("<QQ")


class EndOfStreamError(Exception):
    """All writers of a pipe have exited, and all that they wrote has been read."""


class Descriptor:
    """A file descriptor that this object owns: it is closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self._number = number
        open_here.add(self)

    def fileno(self) -> int:
        """Return the number of the descriptor."""
        return self._number

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


#: The descriptors of this process. A child that other code forks closes them: it would keep the readers of a pipe
#: waiting for an end of file.
open_here: WeakSet[Descriptor] = WeakSet()
os.register_at_fork(after_in_child=lambda: list(map(Descriptor.close, list(open_here))))


def pipe() -> tuple[Descriptor, Descriptor]:
    """Return the reading and the writing end of a new pipe."""
    reader, writer = os.pipe()
    return Descriptor(reader), Descriptor(writer)


def anonymous_file() -> Descriptor:
    """Return a new file that has no name, in memory where the system supports it."""
    if hasattr(os, "memfd_create"):
        return Descriptor(os.memfd_create("bpeflow"))
    import tempfile  # slow to import

    with tempfile.TemporaryFile() as file:
        return Descriptor(os.dup(file.fileno()))


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


class Packed(NamedTuple):
    """A pickled item, and the large buffers in it that support pickling out of band, which are not copied."""

    pickled: bytes | bytearray
    buffers: Sequence[bytearray | memoryview]
    size: int  # of all in bytes

    @classmethod
    def of(cls, item: Any) -> Packed:
        """Pickle an item."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(item, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
        return cls(pickled, raw, len(pickled) + sum(map(len, raw)))

    def load(self) -> Any:
        """Return the item. Its large buffers are these, not copies."""
        return pickle.loads(self.pickled, buffers=map(_exporter, self.buffers))  # noqa: S301 -- from our own worker


def _exporter(buffer: bytearray | memoryview) -> Any:
    """Return the object whose memory a buffer is, or the buffer if it is only a part of that."""
    if isinstance(buffer, memoryview) and memoryview(buffer.obj).nbytes == buffer.nbytes:
        return buffer.obj
    return buffer


class Channel:
    """A queue between the workers of two steps, made by the main process and sent to the workers."""

    def __init__(self, spec: QueueSpec, producers: int, consumers: int) -> None:
        self._pipes = [pipe() for _ in range(consumers if spec.route else 1)]
        self._credits = Credits(spec.max_items)
        self._write_lock = Credits(1) if producers > 1 else nullcontext()
        self._read_lock = Credits(1) if consumers > len(self._pipes) else nullcontext()
        room = min(spec.max_bytes // len(self._pipes), _MAX_PIPE_BYTES)
        for _, writer in self._pipes:
            if hasattr(fcntl, "F_SETPIPE_SZ"):
                with suppress(OSError):  # the user has too many such pipes
                    fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, 1 << max(room.bit_length() - 1, 0))

    def put(self, packed: Packed, consumer: int, meter: Meter) -> None:
        """Wait for room and write an item to the pipe of a consumer, modulo their number."""
        _, writer = self._pipes[consumer % len(self._pipes)]
        sizes = struct.pack(f"<{len(packed.buffers)}Q", *map(len, packed.buffers))
        parts = [_HEADER.pack(len(packed.pickled), len(packed.buffers)) + sizes, packed.pickled, *packed.buffers]
        if packed.size < _SMALL:
            parts = [b"".join(parts)]
        with self._write_lock:
            self._credits.take()
            meter.add_put(packed.size)
            for part in parts:
                write_all(writer, part)

    def get(self, consumer: int, meter: Meter, wait: Callable[[], None] | None = None) -> Packed:
        """Wait for the next item of a consumer. `wait` and `EndOfStreamError` are those of `read_exactly`."""
        reader = self.reader(consumer)
        with self._read_lock:
            size, count = _HEADER.unpack(read_exactly(reader, _HEADER.size, wait))
            sizes = struct.unpack(f"<{count}Q", read_exactly(reader, 8 * count, wait))
            pickled, *buffers = (read_exactly(reader, size, wait) for size in (size, *sizes))
        packed = Packed(pickled, buffers, size + sum(sizes))
        meter.add_taken(packed.size)
        self._credits.give()
        return packed

    def reader(self, consumer: int) -> Descriptor:
        """Return the reading end of a consumer's pipe."""
        return self._pipes[consumer % len(self._pipes)][0]

    def close_writers(self) -> None:
        """Close the writing ends in a process that is not a producer, so that producers' exits end the stream."""
        for _, writer in self._pipes:
            writer.close()
