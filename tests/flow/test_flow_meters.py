"""Meters: sums of rows, readable while workers write."""

import time

from bpeflow.flow import Activity, QueueDepth
from bpeflow.flow.meters import Meters


def test_the_depth_of_a_queue_is_what_was_put_and_not_taken() -> None:
    meters = Meters([2, 3, 1])
    for worker in range(2):
        meters.meter(0, worker).add_put(10)
        meters.meter(0, worker).add_put(5)
    meters.meter(1, 2).add_taken(5)
    meters.meter(1, 2).add_put(99)
    assert meters.depth(0) == QueueDepth(3, 25)
    assert meters.bytes_in_flight(0) == 25
    assert meters.depth(1) == QueueDepth(1, 99)


def test_a_depth_read_between_put_and_taken_is_never_negative() -> None:
    meters = Meters([1, 1])
    meters.meter(1, 0).add_taken(5)
    assert meters.depth(0) == QueueDepth(0, 0)


def test_every_worker_has_a_row_of_its_own() -> None:
    meters = Meters([2, 1])
    meters.meter(0, 1).add_finished(7)
    meters.meter(0, 1).set_activity(Activity.WAITING_FOR_ROOM)
    assert [meter.weight_done for meter in meters.group(0)] == [0, 7]
    assert [meter.activity for meter in meters.group(0)] == [Activity.STARTING, Activity.WAITING_FOR_ROOM]
    assert 0 <= time.monotonic() - meters.meter(0, 1).since < 5
