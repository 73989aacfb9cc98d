"""Meters: sums of rows, readable while workers write."""

import os
import time

from bpeflow.flow import QueueDepth, peak_memory
from bpeflow.flow.shared import Activity, Meter, Meters


def test_the_depth_of_a_queue_is_what_was_put_and_not_taken() -> None:
    meters = Meters([2, 3, 1])
    for worker in range(2):
        meters.steps[0][worker].add_put(10)
        meters.steps[0][worker].add_put(5)
    meters.steps[1][2].add_taken(5)
    meters.steps[1][2].add_put(99)
    assert meters.depth(0) == QueueDepth(3, 25)
    assert meters.depth(1) == QueueDepth(1, 99)


def test_a_depth_read_between_put_and_taken_is_never_negative() -> None:
    meters = Meters([1, 1])
    meters.steps[1][0].add_taken(5)
    assert meters.depth(0) == QueueDepth(0, 0)


def test_every_worker_has_a_row_of_its_own() -> None:
    meters = Meters([2, 1])
    meters.steps[0][1].weight_done += 7
    meters.steps[0][1].set_activity(Activity.WAITING_FOR_ROOM)
    readings = meters.steps[0]
    assert [reading.weight_done for reading in readings] == [0, 7]
    assert [reading.activity for reading in readings] == [Activity.STARTING, Activity.WAITING_FOR_ROOM]
    assert 0 <= time.monotonic_ns() - readings[1].since < 5e9


def test_the_time_spent_in_each_activity_adds_up_to_the_life_of_a_worker() -> None:
    [[meter]] = Meters([1]).steps
    begin = time.monotonic_ns()
    meter.begin()
    for activity in (Activity.WORKING, Activity.WAITING_FOR_ROOM, Activity.WORKING):
        meter.set_activity(activity)
        time.sleep(0.02)
    running, now = Meter.from_buffer_copy(meter), time.monotonic_ns()
    assert running.pid == os.getpid() and not running.finished
    assert running.spent(now)[Activity.WORKING] >= 0.04
    assert 0.06 <= sum(running.spent(now)) <= (now - begin) / 1e9
    meter.end(cpu_seconds=1.5)
    ended = meter
    assert ended.finished and (ended.pid, ended.cpu) == (0, 1_500_000_000)
    assert ended.spent(0) == ended.spent(time.monotonic_ns())


def test_the_peak_memory_includes_what_was_freed() -> None:
    before = peak_memory()
    block = bytearray(b"x") * (before + (10 << 20))
    del block
    assert peak_memory() >= before + (10 << 20)
