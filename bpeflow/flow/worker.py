"""A worker: one call of a stage function, which pulls its inputs and pushes its outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from .channel import Packed
from .descriptors import EndOfStreamError
from .errors import FlowError
from .meters import Activity, Meter
from .spec import Source, Stage

#: The meter of the worker that this thread runs.
_current = threading.local()


def set_gauge(value: int) -> None:
    """Show a number in samples of the pipeline, such as the size of a table. For stage functions, while they run.

    Outside of a stage function it does nothing.
    """
    if (meter := getattr(_current, "meter", None)) is not None:
        meter.gauge = value


class Inputs(Iterator[Any]):
    """The inputs of a stage function, which cannot close it. An item is finished when the next one is requested."""

    def __init__(self, take: Callable[[], Packed], weigh: Callable[[Any], int] | None, meter: Meter) -> None:
        self._take = take
        self._weigh = weigh
        self._meter = meter
        self._weight = 0

    def __next__(self) -> Any:
        """Return the next item."""
        self._meter.weight_done += self._weight
        self._weight = 0
        self._meter.set_activity(Activity.WAITING_FOR_ITEM)
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


def run_stage(
    step: Source | Stage,
    route: Callable[[Any], int] | None,
    meter: Meter,
    take: Callable[[], Packed],
    put: Callable[[Packed, int, Meter], object],
) -> None:
    """Call the function of a source, or that of a stage with its inputs, and put out what it yields.

    `take` returns an input, and raises `EndOfStreamError` at their end; `put` is given a number, by `route`, as well.
    Raises `FlowError` if a stage function has not taken every item: nothing is dropped silently.
    """
    meter.set_activity(Activity.WORKING)
    _current.meter = meter
    inputs: Iterator[Any] = iter(())
    if isinstance(step, Stage):
        inputs = Inputs(take, step.weigh, meter)
    for item in step.function() if isinstance(step, Source) else step.function(inputs):
        packed, consumer = Packed.of(item), route(item) if route else 0
        meter.set_activity(Activity.WAITING_FOR_ROOM)
        put(packed, consumer, meter)
        meter.set_activity(Activity.WORKING)
    for _ in inputs:
        raise FlowError(
            f"stage {step.name!r} returned before the end of its input: a stage function must take every item, "
            "including items that it does not use"
        )
