"""The executor that runs each worker of a pipeline in a thread of the calling process.

For small inputs, which are done before processes have started, and for stage functions that leave the interpreter, as
native code does. The source runs in the calling thread, between two results: an iterable that belongs to that thread
stays there, and Ctrl-C interrupts whatever the source waits for.

Ctrl-C raises `KeyboardInterrupt` between any two steps of the calling thread, also within the Python code of
`threading.Condition`, `Event` and `queue.Queue`, and then their lock may stay taken for ever. So the calling thread
shares no lock with the workers, only objects whose methods are one step each: lists, meters, and `SimpleQueue`, here
called a mailbox.

Items are pickled as they are between processes. So a stage may keep modifying an object that it has yielded, but not
the buffers in it that pickle can leave where they are (`pickle.PickleBuffer`, numpy arrays): these are passed on
themselves, without a copy.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from .shared import Activity, EndOfStreamError, Meter, Meters, pipe, start_threads
from .stage import CancelledError, Packed, QueueSpec, Source, Stage, outputs

#: The message that an item has been taken from a queue. It gives no room away, but is a reason to look.
_TAKEN = Packed(b"", (), 0)


class _Queue:
    """A queue between the workers of two steps. None in a mailbox is the end, of the stream or of the run."""

    def __init__(self, spec: QueueSpec, step: int, meters: Meters, failures: Sequence[BaseException]) -> None:
        producers, consumers = meters.steps[step : step + 2]
        self.items: list[SimpleQueue[Packed | None]] = [SimpleQueue() for _ in (consumers if spec.route else [0])]
        self.taken: SimpleQueue[Packed | None] = SimpleQueue()  # for the producer whose turn it is
        self._turn = threading.Lock()
        self._open = list(producers)  # that have not put their last item
        self._spec = spec
        self._depth = partial(meters.depth, step)
        self._failures = failures

    def has_room(self, packed: Packed) -> bool:
        """Return whether an item fits. It keeps fitting until another one is put."""
        depth = self._depth()
        fits = not depth.items or depth.bytes + packed.size <= self._spec.max_bytes
        return fits and depth.items < self._spec.max_items

    def add(self, packed: Packed, consumer: int, meter: Meter) -> None:
        """Put an item that fits."""
        meter.add_put(packed.size)
        self.items[consumer % len(self.items)].put(packed)

    def put(self, packed: Packed, consumer: int, meter: Meter) -> None:
        """Wait for room and put an item for a consumer. Not for the calling thread, because of the lock."""
        with self._turn:
            while self.taken.qsize() or not self.has_room(packed):
                self._receive(self.taken)
            self.add(packed, consumer, meter)

    def get(self, consumer: int, meter: Meter) -> Packed:
        """Wait for the next item of a consumer and return it. Raises `EndOfStreamError` at the end."""
        packed = self._receive(self.items[consumer % len(self.items)])
        if packed is not _TAKEN:
            meter.add_taken(packed.size)
            self.taken.put(_TAKEN)
        return packed

    def _receive(self, mailbox: SimpleQueue[Packed | None]) -> Packed:
        """Wait for a message. Raises `CancelledError` if the run ends before."""
        message = mailbox.get()
        if message is None:
            mailbox.put(None)  # for the next one that waits
        if self._failures:
            raise CancelledError
        if message is None:
            raise EndOfStreamError
        return message

    def close_producer(self) -> None:
        """Note that a producer has put its last item."""
        self._open.pop()
        if not self._open:  # two that end together may both see that
            self.end()

    def end(self) -> None:
        """Put the end of the stream, or of the run."""
        for mailbox in self.items:
            mailbox.put(None)


class ThreadRun:
    """One run of a pipeline in threads."""

    def __init__(self, steps: Sequence[Source | Stage], queues: Sequence[QueueSpec], meters: Meters) -> None:
        self._steps = steps
        self._routes = [queue.route for queue in queues]
        self._meters = meters
        self._failures: list[BaseException] = []  # which end the run; `CancelledError` if it ends without one
        self._queues = [_Queue(queue, step, meters, self._failures) for step, queue in enumerate(queues)]
        # The calling thread waits for results and for room at once.
        [self._queues[0].taken] = self._queues[-1].items
        self._threads: list[threading.Thread] = []

    def results(self) -> Generator[Any, None, None]:
        """Start the threads, run the source, and yield the results. Raises the first failure."""
        self._ended, self._end_signal = pipe()
        [meter] = self._meters.steps[-1]
        meter.begin()
        meter.set_activity(Activity.WAITING_FOR_AN_ITEM)
        try:
            try:
                for step, worker in self._meters.workers[1:]:
                    name = f"flow {self._steps[step].name} {worker}"
                    thread = threading.Thread(target=self._work, args=(step, worker), name=name, daemon=True)
                    self._threads.append(thread)
                start_threads(self._threads)
                for packed in self._pump():
                    if packed is not _TAKEN:
                        meter.set_activity(Activity.WORKING)
                        yield packed.load()
                        meter.set_activity(Activity.WAITING_FOR_AN_ITEM)  # also while the source works
            finally:
                self._end()
        except CancelledError:
            if isinstance(self._failures[0], CancelledError):  # of a run that this thread belongs to
                raise
        finally:
            self._cancel(CancelledError())  # again: Ctrl-C may have interrupted the end
        if not isinstance(self._failures[0], CancelledError):
            raise self._failures.pop(0)  # its traceback would keep this run alive

    def _pump(self) -> Iterator[Packed]:
        """Move items from the source to the first queue, and yield each message that arrives."""
        first, [meter] = self._queues[0], self._meters.steps[0]
        receive = partial(self._queues[-1].get, 0, *self._meters.steps[-1])
        meter.begin()
        start = time.thread_time()
        for packed, consumer in self._outputs(0, 0):
            while first.taken.qsize() or not first.has_room(packed):
                yield receive()
            first.add(packed, consumer, meter)
        meter.end(time.thread_time() - start)  # with the work of the caller in between
        first.close_producer()
        with suppress(EndOfStreamError):
            while True:
                yield receive()

    def _work(self, step: int, worker: int) -> None:
        """Run a worker in this thread."""
        meter = self._meters.steps[step][worker]
        meter.begin()
        try:
            for packed, consumer in self._outputs(step, worker):
                self._queues[step].put(packed, consumer, meter)
            meter.end(time.thread_time())
        except CancelledError:
            pass
        except BaseException as error:
            self._cancel(error)
        self._queues[step].close_producer()

    def _outputs(self, step: int, worker: int) -> Iterator[tuple[Packed, int]]:
        meter = self._meters.steps[step][worker]
        take = partial(self._queues[step - 1].get, worker, meter)  # which a source does not call
        return outputs(self._steps[step], self._routes[step], meter, take, self._ended)

    def _cancel(self, failure: BaseException) -> None:
        self._failures.append(failure)
        os.write(self._end_signal.fileno(), b"\0")
        for queue in self._queues:
            queue.end()
            queue.taken.put(None)

    def _end(self) -> None:
        """End the threads: each finishes the item that it is working on."""
        self._cancel(CancelledError())
        # Threads are frozen at the end of the process. Garbage collection may close the run in one of its own threads,
        # and others may wait for what that holds.
        if not sys.is_finalizing() and threading.current_thread() not in self._threads:
            for thread in filter(threading.Thread.is_alive, self._threads):
                thread.join()
            self._threads.clear()  # one that never ran would keep this run alive
        self._meters.clear()
