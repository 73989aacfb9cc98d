"""The executor that runs each worker of a pipeline in a thread of the calling process.

For small inputs, which are done before processes have started, and for stage functions that leave the interpreter, as
native code does. The source runs in the calling thread, between two results: an iterable that belongs to that thread
stays there, and Ctrl-C interrupts whatever the source waits for.

Items are pickled as they are between processes. So a stage may keep modifying an object that it has yielded, but not
the buffers in it that pickle can leave where they are (`pickle.PickleBuffer`, numpy arrays): these are passed on
themselves, without a copy.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .channel import Packed
from .descriptors import EndOfStreamError, pipe
from .meters import Activity, Meter
from .worker import Inputs, run_stage

if TYPE_CHECKING:
    from .pipeline import Pipeline


class CancelledError(BaseException):
    """Raised in the workers of a run that has failed or was closed. Not an error that a stage function handles."""


_current = threading.local()


def wait_readable(descriptor: int) -> None:
    """Wait until there is something to read from a pipe or a socket; for sources that read one.

    In a thread a plain read would go on waiting although the run has failed: this ends it.
    """
    run: ThreadRun | None = getattr(_current, "run", None)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if run is not None:
        poll.register(run.ended, select.POLLIN)
    if any(number != descriptor for number, _ in poll.poll()):
        raise CancelledError


class ThreadRun:
    """One run of a pipeline in threads. `ended` is a descriptor that is readable when it has ended."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._meters = pipeline.meters
        self._producers = [len(meters) for meters in self._meters.steps[:-1]]  # that have not put their last item
        self._queues: list[list[deque[Packed]]] = [  # of each step, the queue that it writes to, by consumer if routed
            [deque() for _ in (consumers if queue.route else [0])]
            for queue, consumers in zip(pipeline.queues, self._meters.steps[1:], strict=True)
        ]
        self._changed = threading.Condition()  # notified of each change in a queue, and of the end
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._cancelled = False

    def results(self) -> Generator[Any, None, None]:
        """Start the threads, run the source, and yield the results. Raises the first failure."""
        self.ended, self._keep_open = pipe()
        [meter] = self._meters.steps[-1]
        meter.begin(os.getpid())
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        try:
            for step, stage in enumerate(self._pipeline.stages, 1):
                for worker in range(stage.workers):
                    name = f"flow {stage.name} {worker}"
                    thread = threading.Thread(target=self._work, args=(step, worker), name=name, daemon=True)
                    thread.start()
                    self._threads.append(thread)
            for result in self._pump(Inputs(partial(self._get, -1, 0, meter), None, meter)):
                yield result
                meter.set_activity(Activity.WAITING_FOR_ITEM)  # also while the source works
        except CancelledError:
            if self._failure is None:  # not this run was cancelled, but one that this thread belongs to
                raise
        finally:
            self._end()
        if self._failure:
            failure, self._failure = self._failure, None  # its traceback would keep this run alive
            raise failure

    # ---- queues ----

    def _put(self, step: int, packed: Packed, consumer: int, meter: Meter, instead: Sequence[Any] = ()) -> bool:
        """Put an item when there is room in the queue of a step; or return False when there is something `instead`."""
        queue = self._queues[step]
        with self._changed:
            self._wait_for(lambda: self._has_room(step, packed) or instead)
            if has_room := self._has_room(step, packed):
                meter.add_put(packed.size)
                queue[consumer % len(queue)].append(packed)
                self._changed.notify_all()
        return has_room

    def _has_room(self, step: int, packed: Packed) -> bool:
        depth, bounds = self._meters.depth(step), self._pipeline.queues[step]
        fits = not depth.items or depth.bytes + packed.size <= bounds.max_bytes
        return fits and depth.items < bounds.max_items

    def _get(self, step: int, consumer: int, meter: Meter) -> Packed:
        """Wait for the next item of a consumer and return it. Raises `EndOfStreamError` at the end."""
        queue = self._queues[step]
        items = queue[consumer % len(queue)]
        with self._changed:
            self._wait_for(lambda: items or not self._producers[step])
            if not items:
                raise EndOfStreamError
            packed = items.popleft()
            meter.add_taken(packed.size)
            self._changed.notify_all()
        return packed

    def _wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, while `_changed` is held. Raises `CancelledError` if the run ends before."""
        self._changed.wait_for(lambda: self._cancelled or condition())
        if self._cancelled:
            raise CancelledError

    def _close_producer(self, step: int) -> None:
        """Note that a producer has put its last item."""
        with self._changed:
            self._producers[step] -= 1
            self._changed.notify_all()

    # ---- the calling thread ----

    def _pump(self, results: Inputs) -> Iterator[Any]:
        """Move items from the source to the first queue, and yield those in the last, as long as there are any."""
        [meter], [last], route = self._meters.steps[0], self._queues[-1], self._pipeline.queues[0].route
        for item in self._source_items(meter):
            packed, consumer = Packed.of(item), route(item) if route else 0
            meter.set_activity(Activity.WAITING_FOR_ROOM)
            while not self._put(0, packed, consumer, meter, instead=last):
                yield next(results)
            while last:
                yield next(results)
        self._close_producer(0)
        yield from results

    def _source_items(self, meter: Meter) -> Iterator[Any]:
        """Yield the items of the source, and measure the CPU time that it takes."""
        cpu, items, end = 0.0, None, object()
        meter.begin(os.getpid())
        while True:
            meter.set_activity(Activity.WORKING)
            start, outer, _current.run = time.thread_time(), getattr(_current, "run", None), self
            try:
                items = iter(self._pipeline.source.function()) if items is None else items
                item = next(items, end)
            finally:
                _current.run = outer
            cpu += time.thread_time() - start
            if item is end:
                break
            yield item
        meter.end(cpu)

    def _end(self) -> None:
        """End the threads: each finishes the item that it is working on."""
        self._cancel()
        self._meters.clear()
        if not sys.is_finalizing():  # threads are frozen then
            for thread in self._threads:
                if thread is not threading.current_thread():  # in which garbage collection closed the run
                    thread.join()

    # ---- the worker threads ----

    def _work(self, step: int, worker: int) -> None:
        stage, queue, meter = (
            self._pipeline.stages[step - 1],
            self._pipeline.queues[step],
            self._meters.steps[step][worker],
        )
        meter.begin(threading.get_native_id())
        try:
            run_stage(stage, queue.route, meter, partial(self._get, step - 1, worker, meter), partial(self._put, step))
            meter.end(time.thread_time())
        except CancelledError:
            pass
        except BaseException as error:
            self._cancel(error)
        self._close_producer(step)

    def _cancel(self, failure: BaseException | None = None) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._cancelled = True
            self._keep_open.close()
            self._changed.notify_all()
