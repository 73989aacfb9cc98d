"""Queues: the bounds hold, in items and in bytes, and never deadlock; every item arrives once and equal."""

import multiprocessing
import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import flow_workers as w
import numpy as np
import pytest
from flow_checks import pids, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.flow import Executor, Pipeline, QueueSpec, Source, Stage, WorkerDiedError
from bpeflow.flow.pipes import Channel
from bpeflow.flow.shared import Credits, EndOfStreamError, Meters, owned, pipe, write_all
from bpeflow.flow.stage import Packed

EXECUTORS: list[Executor] = ["processes", "threads"]


def settled(pipeline: Pipeline, expected: int = 0) -> int:
    """Return the number of items that the source has put, once it is at least as expected and no longer changes."""
    wait_until(lambda: pipeline.snapshot().total("source", "items_out") >= expected)
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        now = pipeline.snapshot().total("source", "items_out")
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.01)
    return last


def test_the_source_cannot_run_ahead_of_a_slow_caller() -> None:
    pipeline = w.simple_pipeline(w.endless, w.pass_on, workers=1, max_items=3)
    run = pipeline.run()
    for taken in range(1, 4):
        next(run)
        expected = taken + 3 + 1 + 3  # taken, in the results queue, in the stage, in its queue
        assert settled(pipeline, expected) == expected
    run.close()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_byte_bound_holds_as_well(executor: Executor, tmp_path: Path) -> None:
    hold = partial(w.hold_until_exists, tmp_path / "go on")
    stage = Stage("stage", hold, QueueSpec("in", max_items=50, max_bytes=8192))
    pipeline = Pipeline(Source("source", partial(w.blobs, [1000] * 100)), [stage])
    depths = []

    def observe_and_go_on() -> None:
        assert wait_until(lambda: pipeline.snapshot().total("stage", "items_in") == 1)
        settled(pipeline)
        depths.append(pipeline.snapshot().queues["in"])
        (tmp_path / "go on").touch()

    thread = threading.Thread(target=observe_and_go_on)
    thread.start()
    assert len(list(pipeline.run(executor))) == 100
    thread.join()
    [depth] = depths
    assert 4 <= depth.items <= 9
    assert depth.bytes <= 8192 + 1024, "the bound, and the item that is being put"


def test_a_queue_with_a_large_byte_bound_holds_many_small_items() -> None:
    pipeline = Pipeline(Source("source", w.endless), [], QueueSpec("results", max_items=500, max_bytes=64 << 20))
    run = pipeline.run()
    next(run)
    assert settled(pipeline, 501) == 501
    run.close()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("max_bytes", [1, 5000])
def test_items_larger_than_the_byte_bound_travel_alone(max_bytes: int, executor: Executor) -> None:
    sizes = [10, 4000, 200_000, 1, 100, 70_000, 0] * 3
    queues = [QueueSpec(f"queue {number}", 3, max_bytes) for number in range(2)]
    stage = Stage("stage", w.pass_on, queues[0], workers=3)
    run = Pipeline(Source("source", partial(w.blobs, sizes)), [stage], queues[1]).run(executor)
    assert Counter(len(blob) for blob in run) == Counter(sizes)


def test_routed_queues_share_the_bounds() -> None:
    stage = Stage("stuck", w.sleep_forever, QueueSpec("routed", max_items=6, route=w.identity), workers=3)
    pipeline = Pipeline(Source("source", w.endless), [stage])
    put = []

    def observe_and_end_the_run() -> None:
        wait_until(lambda: pipeline.snapshot().total("source", "items_out") > 0)
        put.append(settled(pipeline))
        os.kill(pids(pipeline)["source", 0], signal.SIGKILL)

    thread = threading.Thread(target=observe_and_end_the_run)
    thread.start()
    with pytest.raises(WorkerDiedError):
        list(pipeline.run())
    thread.join()
    assert put == [6]


@settings(max_examples=50)
@given(
    sizes=st.lists(st.lists(st.integers(0, 9000), max_size=30), min_size=1, max_size=4),
    consumers=st.integers(1, 3),
    max_items=st.integers(1, 5),
    max_bytes=st.sampled_from([1, 8192]),
    routed=st.booleans(),
)
def test_bounds_hold_and_never_deadlock(
    sizes: list[list[int]], consumers: int, max_items: int, max_bytes: int, routed: bool
) -> None:
    """Threads share the same primitives that processes use. The first consumer is this thread."""
    meters = Meters([len(sizes), consumers])
    spec = QueueSpec("q", max_items, max_bytes, route=len if routed else None)
    channel = Channel(spec, len(sizes), consumers)
    received: list[bytes] = []

    def produce(number: int) -> None:
        for size in sizes[number]:
            channel.put(Packed.of(bytes(size)), size, meters.steps[0][number])

    def consume(number: int) -> None:
        while True:
            try:
                item = channel.get(number, meters.steps[1][number]).load()
            except EndOfStreamError:
                return
            received.append(item)
            depth = meters.depth(0)
            if consumers == 1:  # otherwise another may take one while the depth is read
                assert depth.items <= max_items
                assert depth.bytes <= 8192 + 2 * 9100, "in the pipe, being put, and taken but not counted"
            if routed:
                assert len(item) % consumers == number

    def produce_all() -> None:
        producers = [threading.Thread(target=produce, args=(number,)) for number in range(len(sizes))]
        for thread in producers:
            thread.start()
        for thread in producers:
            thread.join()
        channel.close_writers()

    others = [threading.Thread(target=consume, args=(number,)) for number in range(1, consumers)]
    for thread in (threads := [threading.Thread(target=produce_all), *others]):
        thread.start()
    consume(0)
    for thread in threads:
        thread.join()
    assert Counter(map(len, received)) == Counter(size for row in sizes for size in row)
    assert meters.depth(0).items == meters.depth(0).bytes == 0


@pytest.mark.parametrize("written", [1, 15, 16, 100])
def test_a_message_that_ends_in_the_middle_is_left_out(written: int) -> None:
    channel = Channel(QueueSpec("q"), producers=1, consumers=1)
    write_all(channel._pipes[0][1], (struct.pack("<QQ", 256, 0) + bytes(256))[:written])
    channel.close_writers()
    with pytest.raises(EndOfStreamError):
        channel.get(0, Meters([1]).steps[0][0])


# ---- large buffers


def test_buffers_are_not_copied_into_the_pickle() -> None:
    packed = Packed.of([w.Buffers(bytearray(1 << 20)), np.zeros(1 << 17)])
    assert len(packed.pickled) < 1000
    assert packed.size > 2 << 20


@pytest.mark.parametrize("executor", EXECUTORS)
def test_buffers_arrive_equal_and_writable(executor: Executor) -> None:
    array = np.arange(500_000).reshape(500, 1000)
    text = bytearray(range(256)) * 10_000
    items = [[array, w.Buffers(text, bytearray(), b"fixed", memoryview(text)[5:9])], np.array([]), w.Buffers()]
    [[first, buffers], second, third] = w.simple_pipeline(
        partial(w.pickled, pickle.dumps(items, 5)), w.pass_on, w.pass_on, workers=1
    ).run(executor)
    assert np.array_equal(first, array)
    assert (second.size, third.parts) == (0, ())
    assert buffers.parts == (text, b"", b"fixed", text[5:9])
    assert isinstance(buffers.parts[0], bytearray)
    first[0, 0] = buffers.parts[0][0] = 7


def test_an_item_may_consist_of_thousands_of_buffers() -> None:
    parts = [bytearray([number % 256]) * (number % 50) for number in range(5000)]
    source = partial(w.pickled, pickle.dumps([w.Buffers(*parts)], 5))
    [item] = w.simple_pipeline(source, w.pass_on).run()
    assert list(item.parts) == parts


# ---- the end of the stream

STOP = "stop"


class SlowToPickle:
    """An item that keeps the feeder thread of `multiprocessing.Queue` busy until an event, as large data would."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __reduce__(self) -> tuple[Any, ...]:
        self.event.wait(30)
        return (str, ("data",))


def put_data(queue: Any, data_is_put: Any, stop_has_arrived: Any) -> None:
    queue.put(SlowToPickle(stop_has_arrived))
    data_is_put.set()


def put_stop_after_the_data(queue: Any, data_is_put: Any, _: Any) -> None:
    data_is_put.wait()
    queue.put(STOP)


@pytest.mark.slow
def test_in_a_plain_queue_the_stop_of_one_worker_overtakes_the_data_of_another() -> None:
    """Why there are no sentinels: see the head of flow/pipes.py."""
    context = multiprocessing.get_context("spawn")
    queue, data_is_put, stop_has_arrived = context.Queue(), context.Event(), context.Event()
    workers = [
        context.Process(target=target, args=(queue, data_is_put, stop_has_arrived))
        for target in (put_data, put_stop_after_the_data)
    ]
    for worker in workers:
        worker.start()
    arrived = [queue.get()]
    stop_has_arrived.set()
    arrived.append(queue.get())
    for worker in workers:
        worker.join()
    queue.close()
    assert arrived == [STOP, "data"], "the data was put first but arrives last: a consumer would already have stopped"


def test_a_worker_that_is_far_behind_loses_nothing() -> None:
    stage = Stage("mixed", w.last_exit_is_slow, QueueSpec("in", 100, route=w.identity), workers=2)
    pipeline = Pipeline(Source("source", partial(w.numbers, 20)), [stage, Stage("next", w.pass_on, QueueSpec("mid"))])
    assert sorted(pipeline.run()) == [-1, *range(20)]


def test_large_results_still_in_the_pipe_are_not_lost_when_their_workers_have_finished() -> None:
    """No result fits into the pipe and the caller is slow, so the workers can exit only as fast as it reads."""
    sizes = [3_000_000, 10, 2_000_000, 20, 1_000_000]
    arrived = []
    for blob in w.simple_pipeline(partial(w.blobs, sizes), w.pass_on, max_items=10).run():
        time.sleep(0.05)
        arrived.append(len(blob))
    assert sorted(arrived) == sorted(sizes)


# ---- the kernel objects


def test_only_as_many_credits_can_be_taken_as_there_are() -> None:
    queue_credits = Credits(3)
    for _ in range(3):
        queue_credits.take()
    os.set_blocking(queue_credits._reader.fileno(), False)
    with pytest.raises(BlockingIOError):
        queue_credits.take()
    queue_credits.give(2)
    queue_credits.take()
    queue_credits.take()
    with pytest.raises(BlockingIOError):
        queue_credits.take()


def test_a_huge_number_of_credits_fits_into_the_pipe() -> None:
    queue_credits = Credits(10**9)
    queue_credits.take()
    queue_credits.give()


def test_closing_twice_closes_no_descriptor_of_others() -> None:
    reader, writer = pipe()
    number = writer.fileno()
    writer.close()
    other = owned(os.dup, reader.fileno())
    assert other.fileno() == number, "the number is used again"
    writer.close()
    os.fstat(other.fileno())


@pytest.mark.filterwarnings("error")
def test_no_python_code_runs_when_the_last_reference_to_a_descriptor_goes() -> None:
    """Ctrl-C in it would be lost."""
    reader, _ = pipe()
    number, calls = reader.fileno(), []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    del reader
    sys.setprofile(None)
    assert not calls
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_holds_no_pipe_open() -> None:
    reader, writer = pipe()
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    try:
        writer.close()
        assert os.read(reader.fileno(), 1) == b""
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
