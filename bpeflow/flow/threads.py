"""The executor that runs each worker of a pipeline in a thread of the calling process.

For small inputs, which are done before processes have started, and for stage functions that leave the interpreter, as
native code does. The source runs in the calling thread, between two results: an iterable that belongs to that thread
stays there, and Ctrl-C interrupts whatever the source waits for.

Items are pickled as they are between processes. So a stage may keep modifying an object that it has yielded, but not
the buffers in it that pickle can leave where they are (`pickle.PickleBuffer`, numpy arrays): these are passed on
themselves, without a copy.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from .shared import Activity, EndOfStreamError, Meter, Meters, pipe
from .stage import CancelledError, Inputs, Packed, QueueSpec, Source, Stage, outputs


class _Changes(threading.Condition):
    """Notified of each change in a queue of a run, and of its end."""

    cancelled = False

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds. Raises `CancelledError` if the run ends before."""
        self.wait_for(lambda: self.cancelled or condition())
        if self.cancelled:
            raise CancelledError


class _Queue:
    """A queue between the workers of two steps, with the methods of `Channel`."""

    def __init__(self, changes: _Changes, spec: QueueSpec, producers: int, consumers: int) -> None:
        self.waiting: list[deque[Packed]] = [deque() for _ in range(consumers if spec.route else 1)]
        self._changes = changes
        self._spec = spec
        self._producers = producers  # that have not put their last item
        self._items = self._bytes = 0

    def put(self, packed: Packed, consumer: int, meter: Meter, instead: Sequence[Any] = ()) -> bool:
        """Put an item for a consumer when there is room; or return False when there is something `instead`."""
        with self._changes:
            self._changes.wait_until(lambda: self._has_room(packed) or instead)
            if has_room := self._has_room(packed):
                self._items += 1
                self._bytes += packed.size
                meter.add_put(packed.size)
                self.waiting[consumer % len(self.waiting)].append(packed)
                self._changes.notify_all()
        return has_room

    def _has_room(self, packed: Packed) -> bool:
        fits = not self._items or self._bytes + packed.size <= self._spec.max_bytes
        return fits and self._items < self._spec.max_items

    def get(self, consumer: int, meter: Meter) -> Packed:
        """Wait for the next item of a consumer and return it. Raises `EndOfStreamError` at the end."""
        waiting = self.waiting[consumer % len(self.waiting)]
        with self._changes:
            self._changes.wait_until(lambda: waiting or not self._producers)
            if not waiting:
                raise EndOfStreamError
            packed = waiting.popleft()
            self._items -= 1
            self._bytes -= packed.size
            meter.add_taken(packed.size)
            self._changes.notify_all()
        return packed

    def close_producer(self) -> None:
        """Note that a producer has put its last item."""
        with self._changes:
            self._producers -= 1
            self._changes.notify_all()


class ThreadRun:
    """One run of a pipeline in threads."""

    def __init__(self, steps: Sequence[Source | Stage], queues: Sequence[QueueSpec], meters: Meters) -> None:
        self._steps = steps
        self._routes = [queue.route for queue in queues]
        self._meters = meters
        workers = [len(meters) for meters in self._meters.steps]
        self._changes = _Changes()
        self._queues = list(map(partial(_Queue, self._changes), queues, workers, workers[1:]))
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def results(self) -> Generator[Any, None, None]:
        """Start the threads, run the source, and yield the results. Raises the first failure."""
        self._ended, self._keep_open = pipe()
        [meter] = self._meters.steps[-1]
        meter.begin()
        meter.set_activity(Activity.WAITING_FOR_AN_ITEM)
        try:
            for step, worker in self._meters.workers[1:]:
                name = f"flow {self._steps[step].name} {worker}"
                thread = threading.Thread(target=self._work, args=(step, worker), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            for result in self._pump(Inputs(partial(self._queues[-1].get, 0, meter), None, meter)):
                yield result
                meter.set_activity(Activity.WAITING_FOR_AN_ITEM)  # also while the source works
        except CancelledError:
            if self._failure is None:  # not this run was cancelled, but one that this thread belongs to
                raise
        finally:
            self._end()
        if self._failure:
            failure, self._failure = self._failure, None  # its traceback would keep this run alive
            raise failure

    def _pump(self, results: Inputs) -> Iterator[Any]:
        """Move items from the source to the first queue, and yield those in the last, as long as there are any."""
        [meter], [last] = self._meters.steps[0], self._queues[-1].waiting
        meter.begin()
        start = time.thread_time()
        for packed, consumer in self._outputs(0, 0):
            while not self._queues[0].put(packed, consumer, meter, instead=last):
                yield next(results)
            while last:
                yield next(results)
        meter.end(time.thread_time() - start)  # with the work of the caller in between
        self._queues[0].close_producer()
        yield from results

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

    def _cancel(self, failure: BaseException | None = None) -> None:
        with self._changes:
            self._failure = self._failure or failure
            self._changes.cancelled = True
            self._keep_open.close()
            self._changes.notify_all()

    def _end(self) -> None:
        """End the threads: each finishes the item that it is working on."""
        self._cancel()
        self._meters.clear()
        if not sys.is_finalizing():  # threads are frozen then
            for thread in self._threads:
                if thread is not threading.current_thread():  # in which garbage collection closed the run
                    thread.join()
