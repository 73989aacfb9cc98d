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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from .channel import END, Packed
from .descriptors import Descriptor, pipe
from .messages import WorkerReport
from .meters import Activity, Meter, Meters
from .spec import QueueSpec, Source, Stage
from .worker import Job, make_report, run_stage


class CancelledError(BaseException):
    """Raised in the workers of a run that has failed or was closed. Not an error that a stage function handles."""


_current = threading.local()


def wait_readable(descriptor: int) -> None:
    """Wait until there is something to read from a pipe or a socket; for sources that read one.

    In a thread a plain read would go on waiting although the run has failed: this ends it.
    """
    run: ThreadRun | None = getattr(_current, "run", None)
    cancelled = [] if run is None else [run.cancelled_descriptor()]
    poll = select.poll()
    for number in [descriptor, *cancelled]:
        poll.register(number, select.POLLIN)
    if any(number in cancelled for number, _ in poll.poll()):
        raise CancelledError


class _Queue:
    """A bounded queue between threads. All queues of a run share its condition."""

    def __init__(self, run: ThreadRun, spec: QueueSpec, step: int, producers: int, consumers: int) -> None:
        self._run = run
        self._spec = spec
        self._step = step
        self._lanes: list[deque[Packed]] = [deque() for _ in range(consumers if spec.route else 1)]
        self._producers = producers

    def put(self, item: Any, meter: Meter) -> None:
        """Wait for room and put an item."""
        packed = Packed.of(item)
        meter.set_activity(Activity.WAITING_FOR_ROOM)
        with self._run.changed:
            self._run.wait_for(lambda: self.has_room(packed.size))
            self.append(item, packed, meter)
        meter.set_activity(Activity.WORKING)

    def get(self, consumer: int, meter: Meter) -> Any:
        """Wait for the next item of a consumer and return it, or `END`."""
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        with self._run.changed:
            self._run.wait_for(lambda: self.is_ready(consumer))
            packed = self.pop(consumer, meter)
        meter.set_activity(Activity.WORKING)
        return END if packed is None else packed.load()

    # ---- while the condition is held ----

    def has_room(self, size: int) -> bool:
        """Return whether the bounds allow another item of `size` bytes."""
        depth = self._run.meters.depth(self._step)
        return depth.items < self._spec.max_items and (not depth.items or depth.bytes + size <= self._spec.max_bytes)

    def append(self, item: Any, packed: Packed, meter: Meter) -> None:
        """Add an item that there is room for."""
        lane = self._spec.route(item) % len(self._lanes) if self._spec.route else 0
        meter.add_put(packed.size)
        self._lanes[lane].append(packed)
        self._run.changed.notify_all()

    def is_ready(self, consumer: int) -> bool:
        """Return whether a consumer can take an item, or learn that there are no more."""
        return bool(self._lanes[consumer % len(self._lanes)]) or not self._producers

    def pop(self, consumer: int, meter: Meter) -> Packed | None:
        """Take the next item of a consumer, or None at the end."""
        lane = self._lanes[consumer % len(self._lanes)]
        if not lane:
            return None
        packed = lane.popleft()
        meter.add_taken(packed.size)
        self._run.changed.notify_all()
        return packed

    def close_producer(self) -> None:
        """Note that a producer has put its last item."""
        self._producers -= 1
        self._run.changed.notify_all()


class ThreadRun:
    """One run of a pipeline in threads.

    Args:
        source: The source.
        stages: The stages.
        queues: The queues that they write to.
        meters: The meters of the pipeline.

    Attributes:
        changed: Notified of each change in a queue.
        meters: The meters of the pipeline.
        reports: The reports of workers that have finished.
    """

    def __init__(self, source: Source, stages: Sequence[Stage], queues: Sequence[QueueSpec], meters: Meters) -> None:
        self.changed = threading.Condition()
        self.meters = meters
        self._source = source
        self._stages = stages
        workers = [1, *(stage.workers for stage in stages), 1]
        self._queues = [_Queue(self, spec, step, workers[step], workers[step + 1]) for step, spec in enumerate(queues)]
        self._reports: dict[tuple[int, int], WorkerReport] = {}
        self._threads: dict[tuple[str, int], threading.Thread] = {}
        self._running = False
        self._failure: BaseException | None = None
        self._cancelled = False
        self._wake_up: tuple[Descriptor, Descriptor] | None = None

    @property
    def pids(self) -> Mapping[tuple[str, int], int]:
        """The running workers: all in this process, the source in the calling thread."""
        if not self._running:
            return {}
        return dict.fromkeys([(self._source.name, 0), *self.threads], os.getpid())

    @property
    def threads(self) -> Mapping[tuple[str, int], int]:
        """The threads of running workers, by the system's number."""
        threads = list(self._threads.items())
        return {key: thread.native_id or 0 for key, thread in threads if thread.is_alive()}

    @property
    def reports(self) -> list[WorkerReport]:
        """The reports of workers that have finished, in the order of steps and workers."""
        return [self._reports[key] for key in sorted(self._reports)]

    def results(self) -> Generator[Any, None, None]:
        """Start the threads, run the source, and yield the results. Raises the first failure."""
        self.meters.start()
        self._running = True
        try:
            for step, stage in enumerate(self._stages, 1):
                for worker in range(stage.workers):
                    name = f"flow {stage.name} {worker}"
                    thread = threading.Thread(target=self._work, args=(step, worker), name=name, daemon=True)
                    thread.start()
                    self._threads[stage.name, worker] = thread
            yield from self._pump()
            return
        except CancelledError:
            if self._failure is None:  # not this run was cancelled, but one that this thread belongs to
                raise
        finally:
            self._end()
        failure, self._failure = self._failure, None  # its traceback would keep this run alive
        raise failure

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. Raises `CancelledError` if the run ends before. Call it with `changed` held."""
        self.changed.wait_for(lambda: self._cancelled or condition())
        if self._cancelled:
            raise CancelledError

    def cancelled_descriptor(self) -> int:
        """Return the number of a descriptor that becomes readable if the run ends early."""
        with self.changed:
            if self._wake_up is None:
                self._wake_up = pipe()
                if self._cancelled:
                    os.write(self._wake_up[1].fileno(), b"!")
            return self._wake_up[0].fileno()

    # ---- the calling thread ----

    def _pump(self) -> Iterator[Any]:
        """Move items from the source to the first queue, and yield those in the last, as long as there are any."""
        first, last = self._queues[0], self._queues[-1]
        source_meter, meter = self.meters.meter(0, 0), self.meters.meter(len(self._queues), 0)
        source = self._source_items(source_meter)
        meter.set_activity(Activity.WAITING_FOR_ITEM)
        pending = next(source, None)
        at_end = False

        def can_put() -> bool:
            return pending is not None and first.has_room(pending[1].size)

        while True:
            if pending is None and not at_end:
                at_end = True
                with self.changed:
                    first.close_producer()
            source_meter.set_activity(Activity.WAITING_FOR_ROOM)
            with self.changed:
                self.wait_for(lambda: can_put() or last.is_ready(0))
                has_put = can_put()
                if has_put and pending is not None:
                    first.append(*pending, source_meter)
                has_result = last.is_ready(0)
                result = last.pop(0, meter) if has_result else None
            if result is not None:
                meter.set_activity(Activity.WORKING)
                yield result.load()
                meter.set_activity(Activity.WAITING_FOR_ITEM)
            elif has_result:
                return
            if has_put:
                pending = next(source, None)

    def _source_items(self, meter: Meter) -> Iterator[tuple[Any, Packed]]:
        """Yield the items of the source, and their pickles; at the end, report."""
        wall = cpu = 0.0
        items = None
        while True:
            meter.set_activity(Activity.WORKING)
            wall_start, cpu_start = time.perf_counter(), time.thread_time()
            outer, _current.run = getattr(_current, "run", None), self
            try:
                items = iter(self._source.function()) if items is None else items
                item = next(items, END)
            finally:
                _current.run = outer
            wall, cpu = wall + time.perf_counter() - wall_start, cpu + time.thread_time() - cpu_start
            if item is END:
                break
            yield item, Packed.of(item)
        self._reports[0, 0] = make_report(self._source.name, 0, meter, wall, cpu)

    def _end(self) -> None:
        """End the threads: each finishes the item that it is working on."""
        self._cancel()
        self._running = False
        if not sys.is_finalizing():  # threads are frozen then
            for thread in self._threads.values():
                if thread is not threading.current_thread():  # in which garbage collection closed the run
                    thread.join()
        self._queues = []  # they refer to this run, and would keep it alive, with all that stage functions refer to

    # ---- the worker threads ----

    def _work(self, step: int, worker: int) -> None:
        stage, meter = self._stages[step - 1], self.meters.meter(step, worker)
        queue_in, queue_out = self._queues[step - 1], self._queues[step]
        start = time.perf_counter()
        try:
            run_stage(
                stage.name,
                Job(stage.function, stage.weigh, None),
                lambda: queue_in.get(worker, meter),
                lambda item: queue_out.put(item, meter),
                meter,
            )
            report = make_report(stage.name, worker, meter, time.perf_counter() - start, time.thread_time())
            self._reports[step, worker] = report
        except CancelledError:
            pass
        except BaseException as error:
            self._cancel(error)
        with self.changed:
            queue_out.close_producer()

    def _cancel(self, failure: BaseException | None = None) -> None:
        with self.changed:
            self._failure = self._failure or failure
            self._cancelled = True
            self.changed.notify_all()
            if self._wake_up is not None:
                os.write(self._wake_up[1].fileno(), b"!")
