"""Bounded queues between processes, made of pipes.

A kernel pipe already is a bounded queue that wakes up its readers and writers. A queue of a pipeline is one pipe, or
one for each consumer if items are routed, whose size bounds the bytes in flight, with

* a lock for the producers and one for the consumers of a shared pipe, because a large message takes several writes;
* credits, one for each item that may be in flight: a producer takes one, and the item's consumer gives it back.

End of stream is end of file: the kernel reports it when all writers have exited and all that they wrote has been read.
(`multiprocessing.Queue` has a feeder thread in each producer, so the order in which items of *different* processes come
out is not the order in which `put` returned: a sentinel of one process can overtake the data of another.
tests/flow/test_flow_pipes.py shows it. Hence no sentinels.)

A killed process keeps the locks and credits that it holds, and an item that it wrote only in part looks like the end of
the stream. So the whole run must end.
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Callable
from contextlib import nullcontext, suppress

from .shared import Credits, Descriptor, Meter, pipe, read_exactly, write_all
from .stage import Packed, QueueSpec

#: Upper bound on the size of a pipe. Larger: fewer switches between the processes when a large item is sent. This is
#: the most that Linux allows by default.
_MAX_PIPE_BYTES = 1 << 20

#: Smaller messages are copied into one write, so that their readers wake up once. Larger ones are written in parts.
_SMALL = 1 << 16

#: Before each message: the size of the pickle, and the number of the buffers whose sizes follow.
_HEADER = struct.Struct("<QQ")


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
        """Wait for the next item of a consumer. `wait` and `EndOfStreamError` are as for `read_exactly`."""
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
