"""Back-pressure: the bounds of a queue hold, in items and in bytes, and never deadlock."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from functools import partial

import flow_workers as w
import pytest
from flow_checks import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.flow import Pipeline, QueueSpec, Source, Stage, WorkerDiedError
from bpeflow.flow.channel import Bounds
from bpeflow.flow.meters import shared_meters

CONTEXT = multiprocessing.get_context("forkserver")


def settled(pipeline: Pipeline) -> int:
    """Return the number of items that the source has put, once that number no longer changes."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        now = pipeline.snapshot().stages["source"].items_out
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.01)
    return last


def test_the_source_cannot_run_ahead_of_a_slow_caller() -> None:
    pipeline = w.simple_pipeline(w.endless, w.pass_on, workers=1, max_items=3)
    run = pipeline.run()
    for taken in range(1, 4):
        next(run)
        assert settled(pipeline) == taken + 3 + 1 + 3, "taken, in the results queue, in the stage, in its queue"
    run.close()


def test_the_byte_bound_holds_as_well() -> None:
    pipeline = Pipeline(
        Source("source", partial(w.blobs, [1000] * 100)), [], QueueSpec("results", max_items=50, max_bytes=5500)
    )
    run = pipeline.run()
    next(run)
    assert settled(pipeline) == 1 + 5
    assert pipeline.snapshot().queues["results"].bytes <= 5500
    assert len(list(run)) == 99


def test_a_queue_with_a_large_byte_bound_holds_many_small_items() -> None:
    pipeline = Pipeline(Source("source", w.endless), [], QueueSpec("results", max_items=500, max_bytes=64 << 20))
    run = pipeline.run()
    next(run)
    assert settled(pipeline) == 501
    run.close()


@pytest.mark.parametrize("max_bytes", [1, 100, 5000])
def test_items_larger_than_the_byte_bound_travel_alone(max_bytes: int) -> None:
    sizes = [10, 4000, 200_000, 1, 100, 70_000, 0] * 3
    queues = [QueueSpec(f"queue {number}", 3, max_bytes) for number in range(2)]
    stage = Stage("stage", w.pass_on, queues[0], workers=3)
    run = Pipeline(Source("source", partial(w.blobs, sizes)), [stage], queues[1]).run()
    assert Counter(len(blob) for blob in run) == Counter(sizes)


def test_routed_queues_share_the_bounds() -> None:
    stage = Stage("stuck", w.sleep_forever, QueueSpec("routed", max_items=6, route=w.identity), workers=3)
    pipeline = Pipeline(Source("source", w.endless), [stage])
    put = []

    def observe_and_end_the_run() -> None:
        wait_until(lambda: pipeline.snapshot().stages["source"].items_out > 0)
        put.append(settled(pipeline))
        os.kill(pipeline.snapshot().pids["source", 0], signal.SIGKILL)

    threading.Thread(target=observe_and_end_the_run).start()
    with pytest.raises(WorkerDiedError):
        list(pipeline.run())
    assert put == [6]


@settings(max_examples=25)
@given(
    sizes=st.lists(st.lists(st.integers(1, 50), max_size=30), min_size=1, max_size=4),
    max_items=st.integers(1, 5),
    max_bytes=st.integers(1, 60),
)
def test_bounds_hold_and_never_deadlock(sizes: list[list[int]], max_items: int, max_bytes: int) -> None:
    """Producer threads and one consumer share the same primitives that processes use."""
    producers, [consumer] = shared_meters(CONTEXT, [len(sizes), 1])
    bounds = Bounds(CONTEXT, QueueSpec("q", max_items, max_bytes), producers, [consumer])
    sent: list[int] = []
    threads = [
        threading.Thread(
            target=lambda row=row, meter=meter: [(bounds.reserve(size, meter), sent.append(size)) for size in row]
        )
        for row, meter in zip(sizes, producers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for _ in range(sum(map(len, sizes))):
        while not sent:
            time.sleep(0)
        depth = bounds.in_flight()
        assert depth.items <= max_items
        assert depth.items <= 1 or depth.bytes <= max_bytes
        bounds.release(sent.pop(0), consumer)
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
