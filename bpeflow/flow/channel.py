"""Bounded queues between processes, made of pipes.

A kernel pipe already is a bounded queue that wakes up its readers and writers. A queue of a pipeline is one pipe, or
one for each consumer if items are routed, with

* a lock for the producers and one for the consumers of a shared pipe, because a large message takes several writes;
* credits, one for each item that may be in flight: a producer takes one, and the item's consumer gives it back.

The bytes in flight are bounded by the sizes of the pipes. An item that is larger blocks its producer, which holds the
lock, until the consumer has read all but the rest that fits.

End of stream is end of file: the kernel reports it when all writers have exited and all that they wrote has been read.
Between `put` and the pipe there is nothing. (`multiprocessing.Queue` has a feeder thread in each producer, so the order
in which items of *different* processes come out is not the order in which `put` returned: a sentinel of one process can
overtake the data of another. tests/flow/test_flow_channel.py shows it. Hence no sentinels.)

A killed process keeps the locks and credits that it holds, so the others may wait forever. And an item that it wrote
only in part looks like the end of the stream. So the whole run must end.
"""

from __future__ import annotations

import fcntl
import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from .descriptors import Credits, Descriptor, pipe, read_exactly, write_all
from .meters import Meter
from .spec import QueueSpec

#: Upper bound on the size of a pipe. Larger: fewer switches between the processes when a large item is sent. This is
#: the most that Linux allows by default.
_MAX_PIPE_BYTES = 1 << 20

#: Before each message: the size of the pickle, and the number of the buffers whose sizes follow.
_HEADER = struct.Struct("<QQ")


@dataclass(frozen=True)
class Packed:
    """A pickled item, and the large buffers in it that support pickling out of band, which are not copied."""

    pickled: bytes | bytearray
    buffers: Sequence[bytearray | memoryview] = ()

    @classmethod
    def of(cls, item: Any) -> Packed:
        """Pickle an item."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(item, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        return cls(pickled, [buffer.raw() for buffer in buffers])

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.pickled) + sum(map(len, self.buffers))

    def load(self) -> Any:
        """Return the item. Its large buffers are these, not copies."""
        return pickle.loads(self.pickled, buffers=map(_exporter, self.buffers))  # noqa: S301 -- from our own worker

    def write(self, writer: Descriptor) -> None:
        """Write it to a pipe, as a message."""
        sizes = struct.pack(f"<{len(self.buffers)}Q", *map(len, self.buffers))
        write_all(writer, [_HEADER.pack(len(self.pickled), len(self.buffers)) + sizes, self.pickled, *self.buffers])

    @classmethod
    def read(cls, reader: Descriptor, wait: Callable[[], None] | None = None) -> Packed:
        """Read a message. `wait` and `EndOfStreamError` are those of `read_exactly`."""
        size, buffers = _HEADER.unpack(read_exactly(reader, _HEADER.size, wait))
        sizes = struct.unpack(f"<{buffers}Q", read_exactly(reader, 8 * buffers, wait))
        return cls(read_exactly(reader, size, wait), [read_exactly(reader, size, wait) for size in sizes])


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
        with self._write_lock:
            self._credits.take()
            meter.add_put(packed.size)
            packed.write(writer)

    def get(self, consumer: int, meter: Meter, wait: Callable[[], None] | None = None) -> Packed:
        """Wait for the next item of a consumer. `wait` and `EndOfStreamError` are those of `read_exactly`."""
        with self._read_lock:
            packed = Packed.read(self.reader(consumer), wait)
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
