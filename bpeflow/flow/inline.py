"""The stages of a pipeline chained in the calling process: for inputs too small to be worth starting processes.

Items are pickled and loaded between stages, as they are between processes. So an item is a copy in either mode: a stage
may keep modifying an object that it has yielded, and an item that cannot be pickled already fails on a toy input.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .messages import Stop, WorkerReport
from .meters import Activity, Meter
from .spec import Source, Stage
from .usage import peak_memory
from .worker import Inputs


def run_inline(
    source: Source, stages: Sequence[Stage], meters: Sequence[Meter], reports: list[WorkerReport]
) -> Iterator[Any]:
    """Yield the results, and fill `reports` at the end. `meters` has one for the source, each stage and the caller."""
    for meter in meters:
        meter.set_activity(Activity.STARTING)
    outputs = _TimedIterator(source.function())
    timed = [outputs]
    for stage, producer, consumer in zip(stages, meters, meters[1:], strict=False):
        outputs = _TimedIterator(_apply(stage, _InlineQueue(outputs, producer, consumer), consumer))
        timed.append(outputs)
    yield from iter(_InlineQueue(outputs, meters[-2], meters[-1]), Stop())
    reports += _reports([source.name, *(stage.name for stage in stages)], timed, meters)


def _apply(stage: Stage, take: _InlineQueue, meter: Meter) -> Iterator[Any]:
    inputs = Inputs(take, stage.weigh, meter)
    yield from stage.function(inputs)
    inputs.check_exhausted(stage.name)


class _InlineQueue:
    """Replaces the queue between two stages: calling it returns the next item, or `Stop`."""

    def __init__(self, items: Iterator[Any], producer: Meter, consumer: Meter) -> None:
        self._items = items
        self._producer = producer
        self._consumer = consumer

    def __call__(self) -> Any:
        self._consumer.set_activity(Activity.WAITING_FOR_ITEM)
        self._producer.set_activity(Activity.WORKING)
        item = next(self._items, Stop())
        self._producer.set_activity(Activity.WAITING_FOR_ROOM)
        self._consumer.set_activity(Activity.WORKING)
        if isinstance(item, Stop):
            return item
        payload = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        self._producer.add_put(len(payload))
        self._consumer.add_taken(len(payload))
        return pickle.loads(payload)  # noqa: S301 -- pickled three lines above


class _TimedIterator(Iterator[Any]):
    """Measures the time spent in an iterator, including the iterators that it pulls from."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self.wall_seconds = 0.0
        self.cpu_seconds = 0.0

    def __next__(self) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return next(self._items)
        finally:
            self.wall_seconds += time.perf_counter() - wall
            self.cpu_seconds += time.process_time() - cpu


def _reports(names: Sequence[str], timed: Sequence[_TimedIterator], meters: Sequence[Meter]) -> Iterator[WorkerReport]:
    wall_before = cpu_before = 0.0  # of the stages before, which the next stage's iterator includes
    for name, outputs, meter in zip(names, timed, meters, strict=False):
        yield WorkerReport(
            stage=name,
            worker=0,
            items_in=meter.items_in,
            items_out=meter.items_out,
            wall_seconds=outputs.wall_seconds - wall_before,
            cpu_seconds=outputs.cpu_seconds - cpu_before,
            weight_done=meter.weight_done,
            peak_memory=peak_memory(),
        )
        wall_before, cpu_before = outputs.wall_seconds, outputs.cpu_seconds
