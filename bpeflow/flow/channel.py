"""Bounded queues between processes.

A `Channel` is a `QueueSpec` made real. It consists of lanes, each a ``multiprocessing.Queue`` that never loses an item
in silence (`Lane`): one that all consumers share, or one for each consumer if items are routed; and of `Bounds`, which
producers wait on.

Items are pickled here, before they are put: what cannot be pickled raises in the worker's own code, while a
``multiprocessing.Queue`` would lose it in its feeder thread. The lanes themselves are unbounded and carry ``bytes`` or
`Stop`. Two primitives that would look natural are absent on purpose: ``Queue(maxsize)`` cannot bound bytes, and
``multiprocessing.Condition`` makes ``notify`` wait for its sleepers, of which a killed one never wakes. Nor does the
main process ever wait for a lock or a semaphore that a dead worker could have taken with it: as a consumer it only
releases credits, which never blocks, and the results queue's reading lock is its own.
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

from .diagnostics import NO_MEMORY, NO_MEMORY_TO_REPORT
from .errors import FlowError
from .messages import Stop
from .meters import Activity, Meter, QueueDepth, depth
from .spec import QueueSpec

Route = Callable[[Any], int]

#: Seconds after which the main process, without memory to send a `Stop`, tries again.
_RETRY = 0.1


class Bounds:
    """How many items, and how many bytes of them, may be under way between producers and consumers.

    Items are counted by a semaphore: a producer acquires one *credit* for an item, its consumer releases it. Bytes are
    counted exactly, by the meters. A producer that finds too many bytes under way has to sleep until a consumer has
    taken something, and the credits tell it that too: it acquires further ones, each of which comes back when an item
    is taken, looks again each time, and returns the surplus in the end.

    Why this cannot lock up: only one producer at a time reserves (``_turn``), so nobody else holds surplus credits. All
    credits are then free, held by that producer, or with an item under way. If the producer sleeps, none is free; if
    nothing is under way either, the byte count was zero when it looked, and it would not have slept. A consumer updates
    its meter before it releases the credit, so the producer that acquires it sees the bytes gone.

    (Bytes as a second semaphore, in units of a fraction of ``max_bytes``, was the first idea. Rounded up, every
    thirty-byte item costs a unit and 64 of them fill the queue; rounded down, the bound does not hold.)
    """

    def __init__(
        self, context: BaseContext, spec: QueueSpec, producers: Sequence[Meter], consumers: Sequence[Meter]
    ) -> None:
        self._max_bytes = spec.max_bytes
        self._producers = producers
        self._consumers = consumers
        self._credits = context.Semaphore(spec.max_items)
        self._turn = context.Lock()

    def reserve(self, size: int, meter: Meter) -> None:
        """Wait until an item of ``size`` bytes may go under way, and count it as given by ``meter``.

        An item larger than the bound goes when nothing else is under way.
        """
        with self._turn:
            self._credits.acquire()
            surplus = 0
            while (ahead := self.under_way().bytes) and ahead + size > self._max_bytes:
                self._credits.acquire()
                surplus += 1
            meter.give(size)
            for _ in range(surplus):
                self._credits.release()

    def free(self, size: int, meter: Meter) -> None:
        """Count an item as taken by ``meter`` and let the next one come. Never blocks."""
        meter.take(size)
        self._credits.release()

    def under_way(self) -> QueueDepth:
        """Items and bytes that were given and not yet taken."""
        return depth(self._producers, self._consumers)


class Lane(Queue):  # type: ignore[type-arg]  # it takes none at run time
    """A queue whose feeder thread, should it have no memory to send an item, does not drop it and go on."""

    _home = 0  # elsewhere than where it was made: no process has this id

    def __init__(self, context: BaseContext) -> None:
        super().__init__(ctx=context)
        self._home = os.getpid()
        # When a run is torn down, the main process' feeder may still be writing a Stop that nobody will read.
        self._ignore_epipe = True

    def _on_queue_feeder_error(self, error: Exception, item: object) -> None:
        lacks_memory = isinstance(error, NO_MEMORY)
        if not lacks_memory:
            super()._on_queue_feeder_error(error, item)  # type: ignore[misc]  # no public method
        if self._home != os.getpid():
            os._exit(NO_MEMORY_TO_REPORT if lacks_memory else 1)
        if lacks_memory:
            time.sleep(_RETRY)
            self.put(Stop())  # the main process puts nothing else


class Channel:
    """One bounded queue between the processes of two stages (the caller counts as the last one).

    Producers call `put` and at their end `flush` or `abandon`; consumers call `get`. The main process alone calls
    `stop`, `hang_up` and `close`.
    """

    def __init__(
        self, context: BaseContext, spec: QueueSpec, producers: Sequence[Meter], consumers: Sequence[Meter]
    ) -> None:
        self._name = spec.name
        self._consumers = len(consumers)
        self._bounds = Bounds(context, spec, producers, consumers)
        self._lanes: list[Any] = [Lane(context) for _ in range(len(consumers) if spec.route else 1)]

    def put(self, item: Any, meter: Meter, route: Route | None = None) -> None:
        """Pickle an item, wait for room and send it off. ``route`` is that of the QueueSpec."""
        payload = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        lane = self._lanes[route(item) % len(self._lanes)] if route else self._lanes[0]
        meter.turn_to(Activity.WAITING_FOR_ROOM)
        self._bounds.reserve(len(payload), meter)
        lane.put(payload)
        meter.turn_to(Activity.WORKING)

    def get(self, consumer: int, meter: Meter) -> Any:
        """Wait for the next item of this consumer, or for `Stop`."""
        meter.turn_to(Activity.WAITING_FOR_ITEM)
        message = self._lanes[consumer % len(self._lanes)].get()
        meter.turn_to(Activity.WORKING)
        if isinstance(message, Stop):
            return message
        self._bounds.free(len(message), meter)
        return pickle.loads(message)

    def flush(self, meter: Meter) -> None:
        """Producer, normal end: wait until everything put has reached the pipe."""
        meter.turn_to(Activity.HANDING_ON)
        for lane in self._lanes:
            lane.close()
            lane.join_thread()

    def abandon(self) -> None:
        """Producer, failure: exit without waiting for a pipe that nobody may read any more."""
        for lane in self._lanes:
            lane.cancel_join_thread()

    def stop(self) -> None:
        """Tell every consumer that nothing follows, all producers having exited: see `supervisor`, End of stream."""
        for number in range(self._consumers):
            self._lanes[number % len(self._lanes)].put(Stop())

    def wait_or(self, alarm: Connection) -> bool:
        """Wait until the (only) consumer can get something; False if the alarm came first."""
        return alarm not in wait([self._lanes[0]._reader, alarm])

    def check_empty(self) -> None:
        """Raise unless all that was put has been taken; for the end, when `Stop` has come."""
        if lost := self._bounds.under_way().items:
            raise FlowError(f"queue {self._name!r}: {lost} items were lost between processes")

    def hang_up(self) -> None:
        """Close our writing end: when all producers are dead, a reader left with half a message sees its end."""
        for lane in self._lanes:
            lane._writer.close()

    def close(self) -> None:
        """End our feeder threads, and free pipes and semaphores. Every other process must be dead or done.

        The semaphores go now, not when the garbage collector comes by: it might do so inside a call of
        multiprocessing's resource tracker, which would then have to be called again from within (CPython gh-109629).
        """
        if not self._lanes:
            return
        for lane in self._lanes:
            lane._reader.close()  # a feeder that is blocked on a full pipe wakes with EPIPE
            lane.cancel_join_thread()
            lane.close()
            if lane._thread is not None and lane._thread.is_alive():  # it is not if the system had no thread to give
                lane._thread.join(timeout=1.0)
            lane._writer.close()
        self._lanes.clear()
        del self._bounds
