"""Bounded queues between processes.

A `Channel` implements a `QueueSpec`. It consists of

* `LosslessQueue`s (each a `multiprocessing.Queue` that never loses an item silently): one that all consumers share, or
  one for each consumer if items are routed;
* `Bounds`, which make producers wait.

Items are pickled here, before they are put. An item that cannot be pickled therefore raises in the worker's own code;
a `multiprocessing.Queue` would lose it in its feeder thread. The queues themselves are unbounded and carry `bytes` or
`Stop`.

Two obvious primitives are avoided on purpose. `Queue(maxsize)` cannot bound bytes. `multiprocessing.Condition` makes
`notify` wait for its sleepers, and a killed sleeper never wakes up. For the same reason the main process never waits
for a lock or a semaphore that a dead worker could have taken with it: as a consumer it only releases credits, which
never blocks, and no other process uses the read lock of the results queue.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.queues import Queue
from typing import Any

from .diagnostics import OUT_OF_MEMORY_ERRORS, OUT_OF_MEMORY_STATUS
from .errors import FlowError
from .messages import Stop
from .meters import Activity, Meter, QueueDepth, queue_depth
from .spec import QueueSpec

Route = Callable[[Any], int]

#: Seconds before the main process, which had no memory to send a `Stop`, retries. Shorter spends CPU time on attempts
#: that fail again; longer keeps a finished pipeline waiting.
_RETRY_SECONDS = 0.1


class Bounds:
    """Limits on the items, and on their bytes, in flight between producers and consumers.

    A semaphore counts items: a producer acquires one *credit* for each item, and the item's consumer releases it. The
    meters count bytes exactly. A producer that finds too many bytes in flight has to sleep until a consumer has taken
    something, and the credits signal that as well: the producer acquires further credits, each of which becomes free
    when an item is taken, checks the bytes again each time, and returns the surplus in the end.

    Why this cannot deadlock: only one producer at a time reserves (`_reserve_lock`), so no other producer holds surplus
    credits. Every credit is then free, held by that producer, or with an item in flight. If the producer sleeps, no
    credit is free. If no item is in flight either, the byte count was zero when the producer checked it, so it would
    not have slept. A consumer updates its meter before it releases the credit, so the producer that acquires the credit
    sees that the bytes are gone.

    (Tried first: a second semaphore for the bytes, in units of a fraction of `max_bytes`. Rounded up, every thirty-byte
    item costs a unit, and 64 of them fill the queue. Rounded down, the bound does not hold.)
    """

    def __init__(
        self, context: BaseContext, spec: QueueSpec, producers: Sequence[Meter], consumers: Sequence[Meter]
    ) -> None:
        self._max_bytes = spec.max_bytes
        self._producers = producers
        self._consumers = consumers
        self._credits = context.Semaphore(spec.max_items)
        self._reserve_lock = context.Lock()

    def reserve(self, size: int, meter: Meter) -> None:
        """Wait until there is room for an item of `size` bytes, and count it as put by `meter`.

        An item larger than the bound waits until nothing else is in flight.
        """
        with self._reserve_lock:
            self._credits.acquire()
            surplus = 0
            while (ahead := self.in_flight().bytes) and ahead + size > self._max_bytes:
                self._credits.acquire()
                surplus += 1
            meter.add_put(size)
            for _ in range(surplus):
                self._credits.release()

    def release(self, size: int, meter: Meter) -> None:
        """Count an item as taken by `meter`, and make room for the next one. Never blocks."""
        meter.add_taken(size)
        self._credits.release()

    def in_flight(self) -> QueueDepth:
        """Return the items and bytes that were put and not yet taken."""
        return queue_depth(self._producers, self._consumers)


class LosslessQueue(Queue):  # type: ignore[type-arg]  # it takes none at run time
    """A queue whose feeder thread never silently drops an item that it cannot send.

    In a worker the process exits. The main process, which only sends `Stop`, retries if it was out of memory.
    """

    _owner_pid = 0  # for the copies in other processes: no process has this id

    def __init__(self, context: BaseContext) -> None:
        super().__init__(ctx=context)
        self._owner_pid = os.getpid()
        # When a run is torn down, the main process's feeder may still be writing a Stop that has no reader any more.
        self._ignore_epipe = True

    def _on_queue_feeder_error(self, error: Exception, item: object) -> None:
        out_of_memory = isinstance(error, OUT_OF_MEMORY_ERRORS)
        if not out_of_memory:
            super()._on_queue_feeder_error(error, item)  # type: ignore[misc]  # no public method
        if self._owner_pid != os.getpid():
            os._exit(OUT_OF_MEMORY_STATUS if out_of_memory else 1)
        if out_of_memory:
            time.sleep(_RETRY_SECONDS)
            self.put(Stop())  # the main process puts nothing else


class Channel:
    """One bounded queue between the processes of two stages. The caller counts as the last stage.

    Producers call `put`, and finally `flush` or `discard_unsent`. Consumers call `get`. Only the main process calls
    `send_stop`, `close_writers` and `close`.
    """

    def __init__(
        self, context: BaseContext, spec: QueueSpec, producers: Sequence[Meter], consumers: Sequence[Meter]
    ) -> None:
        self._name = spec.name
        self._consumers = len(consumers)
        self._bounds = Bounds(context, spec, producers, consumers)
        self._queues: list[Any] = [LosslessQueue(context) for _ in range(len(consumers) if spec.route else 1)]

    def put(self, item: Any, meter: Meter, route: Route | None = None) -> None:
        """Pickle an item, wait for room and send it. `route` is that of the `QueueSpec`."""
        payload = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        queue = self._queues[route(item) % len(self._queues)] if route else self._queues[0]
        meter.set_activity(Activity.WAITING_FOR_ROOM)
        self._bounds.reserve(len(payload), meter)
        queue.put(payload)
        meter.set_activity(Activity.WORKING)

    def get(self, consumer: int, meter: Meter) -> Any:
        """Wait for the next item of this consumer, or for `Stop`."""
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        message = self._queues[consumer % len(self._queues)].get()
        meter.set_activity(Activity.WORKING)
        if isinstance(message, Stop):
            return message
        self._bounds.release(len(message), meter)
        return pickle.loads(message)  # noqa: S301 -- from our own worker

    def flush(self, meter: Meter) -> None:
        """Wait until all items put have reached the pipe; for a producer that ends normally."""
        meter.set_activity(Activity.HANDING_ON)
        for queue in self._queues:
            queue.close()
            queue.join_thread()

    def discard_unsent(self) -> None:
        """Let the process exit without waiting for a pipe that may have no reader; for a producer that has failed."""
        for queue in self._queues:
            queue.cancel_join_thread()

    def send_stop(self) -> None:
        """Send `Stop` to every consumer, once all producers have exited: see `supervisor`, End of stream."""
        for number in range(self._consumers):
            self._queues[number % len(self._queues)].put(Stop())

    def wait_for_message(self, alarm: Connection) -> bool:
        """Wait until the (only) consumer can get a message. Return False if the alarm came first."""
        return alarm not in wait([self._queues[0]._reader, alarm])

    def check_empty(self) -> None:
        """Raise `FlowError` unless all items put have been taken; called when `Stop` has arrived."""
        if lost := self._bounds.in_flight().items:
            raise FlowError(f"queue {self._name!r}: {lost} items were lost between processes")

    def close_writers(self) -> None:
        """Close our writing ends: once all producers are dead, a reader waiting for half a message gets end of file."""
        for queue in self._queues:
            queue._writer.close()

    def close(self) -> None:
        """End our feeder threads, and free pipes and semaphores. Every other process must have exited or be done.

        The semaphores are freed now and not by the garbage collector. That could run inside a call of multiprocessing's
        resource tracker, which would then be called again recursively (CPython gh-109629).
        """
        if not self._queues:
            return
        for queue in self._queues:
            queue._reader.close()  # wakes a feeder that is blocked on a full pipe, with EPIPE
            queue.cancel_join_thread()
            queue.close()
            if queue._thread is not None and queue._thread.is_alive():  # not alive if the system refused a thread
                queue._thread.join(timeout=1.0)
            queue._writer.close()
        self._queues.clear()
        del self._bounds
