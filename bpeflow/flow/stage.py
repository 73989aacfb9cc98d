"""The parts of a pipeline, a source, stages and bounded queues, and a worker's call of a stage function."""

from __future__ import annotations

import pickle
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

from .errors import FlowError
from .shared import Activity, Descriptor, EndOfStreamError, Meter


@dataclass(frozen=True)
class QueueSpec:
    """A bounded queue between two stages.

    Both bounds apply at once. A producer that reaches either one waits, which is how a pipeline applies back-pressure.
    Larger bounds smooth out uneven items, smaller ones save memory.

    Attributes:
        name: The name that the monitor shows, for example `"chunk_queue"`.
        max_items: Upper bound on the items in flight (put, and not yet taken by a consumer). Between processes at most
            4,096 (512 on macOS).
        max_bytes: Upper bound on the bytes in flight, counted as pickled, without one item that is being put. Between
            processes at least 4 KiB and at most 1 MiB for each reader (on macOS the system decides).
        route: With None, any worker of the reading stage may take any item. Otherwise an item goes to worker
            `route(item) % workers`, and the bounds apply to the items of all workers together.

    Raises:
        FlowError: If a bound is less than 1.
    """

    name: str
    max_items: int = 64
    max_bytes: int = 64 << 20
    route: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.max_items < 1 or self.max_bytes < 1:
            raise FlowError(f"queue {self.name!r}: max_items and max_bytes must be at least 1")


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


def reduce_out_of_band(record: Any) -> tuple[Any, ...]:
    """Return what the `__reduce_ex__` of a dataclass returns so that large buffers in it are not copied (`Packed`)."""
    values = [getattr(record, item.name) for item in fields(record)]
    large = bytearray, memoryview
    return type(record), tuple(pickle.PickleBuffer(value) if isinstance(value, large) else value for value in values)


def _exporter(buffer: bytearray | memoryview) -> Any:
    """Return the object whose memory a buffer is, or the buffer if it is only a part of that."""
    if isinstance(buffer, memoryview) and memoryview(buffer.obj).nbytes == buffer.nbytes:
        return buffer.obj
    return buffer


class Source(NamedTuple):
    """The origin of the items: a function without arguments that returns an iterable, run by a worker of its own."""

    name: str
    function: Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline: a generator function over its inputs, run by `workers` workers in parallel.

    The function is called once by each worker and must consume all of its inputs. The items that it yields go to the
    next stage. Items yielded after the last input are its flush.

    Attributes:
        name: The name that the monitor and error messages show.
        function: The generator function.
        reads: The queue that the stage takes its inputs from.
        workers: The number of workers: processes or threads.
        weigh: Returns the amount of work in one input, by convention its size in bytes. Rates and progress use it.

    Raises:
        FlowError: If `workers` is less than 1.
    """

    name: str
    function: Callable[[Iterator[Any]], Iterator[Any]]
    reads: QueueSpec
    workers: int = 1
    weigh: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise FlowError(f"stage {self.name!r}: workers must be at least 1, not {self.workers}")


class CancelledError(BaseException):
    """Raised in the threads of a run that has failed or was closed. Not an error that a stage function handles."""


#: While a function of a pipeline runs: its worker's meter and, in threads, a pipe that can be read once the run ends.
_worker: ContextVar[tuple[Meter, Descriptor | None] | None] = ContextVar("worker", default=None)


def set_gauge(value: int) -> None:
    """Show a number in samples of the pipeline, such as the size of a table. For stage functions, while they run.

    Outside of a stage function it does nothing.
    """
    if worker := _worker.get():
        worker[0].gauge = value


def wait_readable(descriptor: int) -> None:
    """Wait until there is something to read from a pipe or a socket; for sources that read one.

    In a thread a plain read would keep waiting although the run has failed: this ends it.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if (worker := _worker.get()) and worker[1]:
        poll.register(worker[1], select.POLLIN)
    if any(number != descriptor for number, _ in poll.poll()):
        raise CancelledError


class Inputs(Iterator[Any]):
    """The inputs of a stage function, which cannot close it. An item is finished when the next one is requested.

    `take` returns one, and raises `EndOfStreamError` at their end.
    """

    def __init__(self, take: Callable[[], Packed], weigh: Callable[[Any], int] | None, meter: Meter) -> None:
        self._take = take
        self._weigh = weigh
        self._meter = meter
        self._weight = 0

    def __next__(self) -> Any:
        self._meter.weight_done += self._weight
        self._weight = 0
        self._meter.set_activity(Activity.WAITING_FOR_AN_ITEM)
        try:
            packed = self._take()
        except EndOfStreamError:
            raise StopIteration from None
        finally:
            self._meter.set_activity(Activity.WORKING)
        item = packed.load()
        if self._weigh:
            self._weight = self._weigh(item)
        return item


def outputs(
    step: Source | Stage,
    route: Callable[[Any], int] | None,
    meter: Meter,
    take: Callable[[], Packed],
    ended: Descriptor | None = None,
) -> Iterator[tuple[Packed, int]]:
    """Call the function of a source, or that of a stage with its inputs, and yield what it yields, packed.

    Each item comes with its number by `route`. `take` is that of `Inputs`. Raises `FlowError` if a stage function has
    not taken every item: nothing is dropped silently.
    """
    inputs = Inputs(take, step.weigh, meter) if isinstance(step, Stage) else iter(())
    function = partial(step.function, inputs) if isinstance(step, Stage) else step.function
    context = copy_context()  # not that of the thread, which in the case of a source is the caller's
    context.run(_worker.set, (meter, ended))
    meter.set_activity(Activity.WORKING)
    items, end = context.run(lambda: iter(function())), object()
    while (item := context.run(next, items, end)) is not end:
        packed, consumer = Packed.of(item), route(item) if route else 0
        meter.set_activity(Activity.WAITING_FOR_ROOM)
        yield packed, consumer
        meter.set_activity(Activity.WORKING)
    for _ in inputs:
        raise FlowError(
            f"stage {step.name!r} returned before the end of its input: a stage function must take every item, "
            "including items that it does not use"
        )
