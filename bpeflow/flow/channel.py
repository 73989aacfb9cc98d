"""Bounded queues between processes, made of pipes.

A kernel pipe already is a bounded queue that wakes up its readers and writers. A queue of a pipeline is one pipe, or
one for each consumer if items are routed, with

* a lock for the producers and one for the consumers of a shared pipe, because a large message takes several writes;
* credits, one for each item that may be in flight.

End of stream is end of file: the kernel reports it when all writers have exited and all that they wrote has been read.
Between `put` and the pipe there is nothing. (`multiprocessing.Queue` has a feeder thread in each producer, so the order
in which items of *different* processes come out is not the order in which `put` returned: a sentinel of one process can
overtake the data of another. tests/flow/test_flow_channel.py shows it. Hence no sentinels.)

An item is pickled by its producer; one that cannot be pickled raises there. Large buffers in it that support the
out-of-band protocol (`pickle.PickleBuffer`, numpy arrays) are written and read without being copied in between.

A killed process keeps the locks and credits that it holds, so the others may wait forever: the whole run must end.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from .descriptors import Credits, Descriptor, enlarge, pipe, read_into, write_all
from .meters import Activity, Meter, Meters
from .spec import QueueSpec

#: What `get` returns at the end of the stream.
END = object()

#: Size that the buffer of a pipe is given where the system allows it. Larger: fewer switches between the processes when
#: a large item is sent. This is the most that Linux allows by default.
_PIPE_BYTES = 1 << 20

#: Before each message: the size of the pickle, and the number of the buffers whose sizes follow.
_HEADER = struct.Struct("<QQ")


def _exporter(buffer: bytearray | memoryview) -> Any:
    """Return the object whose memory a buffer is, or the buffer if it is only a part of that."""
    if isinstance(buffer, memoryview) and memoryview(buffer.obj).nbytes == buffer.nbytes:
        return buffer.obj
    return buffer


class TruncatedError(Exception):
    """The last writer of a pipe died in the middle of a message."""


@dataclass(frozen=True)
class Packed:
    """A pickled item, and the buffers that are not part of the pickle."""

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


@dataclass
class Bounds:
    """Limits on the items, and on their bytes, in flight between the producers and the consumers of a queue.

    A producer takes one credit for each item, and the item's consumer gives it back. The meters count bytes exactly. A
    producer that finds too many bytes in flight has to sleep until a consumer has taken something, and the credits
    signal that as well: the producer takes further credits, each of which becomes free when an item is taken, checks
    the bytes again each time, and gives the surplus back in the end.

    Why this cannot deadlock: only one producer at a time reserves, so no other producer holds surplus credits. Every
    credit is then free, held by that producer, or with an item in flight. If the producer sleeps, no credit is free. If
    no item is in flight either, the byte count was zero when the producer checked it, so it would not have slept. A
    consumer updates its meter before it gives the credit back, so the producer that takes the credit sees that the
    bytes are gone.

    (Credits for bytes do not work: with a credit for each part of `max_bytes`, rounded up, thirty-byte items fill the
    queue; rounded down, the bound does not hold.)

    Attributes:
        max_bytes: The bound on bytes.
        credits: A credit for each item that may be in flight.
        meters: The meters of the pipeline.
        step: The step whose workers are the producers.
    """

    max_bytes: int
    credits: Credits
    meters: Meters
    step: int

    def reserve(self, size: int, meter: Meter) -> None:
        """Wait until there is room for an item of `size` bytes, and count it as put. One producer at a time.

        An item larger than the bound waits until nothing else is in flight.
        """
        self.credits.take()
        surplus = 0
        while (ahead := self.meters.bytes_in_flight(self.step)) and ahead + size > self.max_bytes:
            self.credits.take()
            surplus += 1
        meter.add_put(size)
        if surplus:
            self.credits.give(surplus)

    def release(self, size: int, meter: Meter) -> None:
        """Count an item as taken, and make room for the next one. Never blocks."""
        meter.add_taken(size)
        self.credits.give()


@dataclass
class Sender:
    """The producers' end of a queue.

    Attributes:
        lanes: The writing ends of its pipes.
        lock: Held by the producer that writes, if there are several.
        bounds: The queue's bounds.
    """

    lanes: list[Descriptor]
    lock: Credits | nullcontext[None]
    bounds: Bounds

    def put(self, item: Any, meter: Meter, route: Callable[[Any], int] | None) -> None:
        """Pickle an item, wait for room and write it to its pipe. `route` is that of the `QueueSpec`."""
        packed = Packed.of(item)
        lane = self.lanes[route(item) % len(self.lanes) if route else 0]
        header = _HEADER.pack(len(packed.pickled), len(packed.buffers))
        sizes = struct.pack(f"<{len(packed.buffers)}Q", *map(len, packed.buffers))
        meter.set_activity(Activity.WAITING_FOR_ROOM)
        with self.lock:
            self.bounds.reserve(packed.size, meter)
            write_all(lane, [header + sizes, packed.pickled, *packed.buffers])
        meter.set_activity(Activity.WORKING)


@dataclass
class Receiver:
    """A consumer's end of a queue.

    Attributes:
        lane: The reading end of its pipe.
        lock: Held by the consumer that reads, if consumers share the pipe.
        bounds: The queue's bounds.
        wait: Called before each read, if given; it returns when there is something to read.
    """

    lane: Descriptor
    lock: Credits | nullcontext[None]
    bounds: Bounds
    wait: Callable[[], None] | None = None

    def get(self, meter: Meter) -> Any:
        """Wait for the next item and return it, or `END`. Raises `TruncatedError` if the last producer died."""
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        with self.lock:
            packed = self._read()
        meter.set_activity(Activity.WORKING)
        if packed is None:
            return END
        self.bounds.release(packed.size, meter)
        return packed.load()

    def _read(self) -> Packed | None:
        header = bytearray(_HEADER.size)
        if not (count := read_into(self.lane, header, self.wait)):
            return None
        if count < len(header):
            raise TruncatedError
        length, buffers = _HEADER.unpack(header)
        sizes = struct.unpack(f"<{buffers}Q", self._read_exactly(8 * buffers)) if buffers else ()
        return Packed(self._read_exactly(length), [self._read_exactly(size) for size in sizes])

    def _read_exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        if read_into(self.lane, buffer, self.wait) < size:
            raise TruncatedError
        return buffer


@dataclass
class Channel:
    """Both ends of a queue, made by the main process, which passes each worker its own.

    Attributes:
        sender: The producers' end.
        receivers: The end of each consumer.
    """

    sender: Sender
    receivers: list[Receiver]

    @classmethod
    def open(cls, spec: QueueSpec, meters: Meters, step: int) -> Channel:
        """Create the queue that a step writes to, from its description."""
        producers, consumers = len(meters.group(step)), len(meters.group(step + 1))
        bounds = Bounds(spec.max_bytes, Credits(spec.max_items), meters, step)
        pipes = [pipe() for _ in range(consumers if spec.route else 1)]
        writers = [writer for _, writer in pipes]
        for writer in writers:
            enlarge(writer, _PIPE_BYTES)
        shared = Credits(1) if consumers > len(pipes) else nullcontext()
        sender = Sender(writers, Credits(1) if producers > 1 else nullcontext(), bounds)
        receivers = [Receiver(pipes[number % len(pipes)][0], shared, bounds) for number in range(consumers)]
        return cls(sender, receivers)

    def close_writers(self) -> None:
        """Close the main process's copies of the writing ends, so that the workers' exits are the end of the stream."""
        for lane in self.sender.lanes:
            lane.close()
