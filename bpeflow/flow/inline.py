"""The stages of a pipeline chained in the calling process: for inputs too small to be worth a pool.

Items are pickled and loaded on their way from stage to stage, as they are between processes. So an item is a copy in
either mode: a stage may go on to change what it has yielded, and what cannot be pickled fails on the toy input already.
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
    """Yield the results, and fill ``reports`` at the end; ``meters``: of the source, of each stage, of the caller."""
    for meter in meters:
        meter.turn_to(Activity.STARTING)
    flow = _Timed(source.function())
    timed = [flow]
    for stage, above, meter in zip(stages, meters, meters[1:], strict=False):
        flow = _Timed(_apply(stage, _Hop(flow, above, meter), meter))
        timed.append(flow)
    yield from iter(_Hop(flow, meters[-2], meters[-1]), Stop())
    reports += _reports([source.name, *(stage.name for stage in stages)], timed, meters)


def _apply(stage: Stage, take: _Hop, meter: Meter) -> Iterator[Any]:
    inputs = Inputs(take, stage.weigh, meter)
    yield from stage.function(inputs)
    inputs.check_exhausted(stage.name)


class _Hop:
    """Stands for the queue between two stages: calling it gives the next item, or `Stop`."""

    def __init__(self, items: Iterator[Any], above: Meter, below: Meter) -> None:
        self._items = items
        self._above = above
        self._below = below

    def __call__(self) -> Any:
        self._below.turn_to(Activity.WAITING_FOR_ITEM)
        self._above.turn_to(Activity.WORKING)
        item = next(self._items, Stop())
        self._above.turn_to(Activity.WAITING_FOR_ROOM)
        self._below.turn_to(Activity.WORKING)
        if isinstance(item, Stop):
            return item
        payload = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        self._above.give(len(payload))
        self._below.take(len(payload))
        return pickle.loads(payload)


class _Timed(Iterator[Any]):
    """Adds up the time spent in an iterator, and in whatever that pulls on in turn."""

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


def _reports(names: Sequence[str], timed: Sequence[_Timed], meters: Sequence[Meter]) -> Iterator[WorkerReport]:
    wall_above = cpu_above = 0.0
    for name, flow, meter in zip(names, timed, meters, strict=False):
        yield WorkerReport(
            stage=name,
            worker=0,
            items_in=meter.items_in,
            items_out=meter.items_out,
            wall_seconds=flow.wall_seconds - wall_above,
            cpu_seconds=flow.cpu_seconds - cpu_above,
            weight_done=meter.weight_done,
            peak_memory=peak_memory(),
        )
        wall_above, cpu_above = flow.wall_seconds, flow.cpu_seconds
