"""The slow stage is named, and nothing where the pipeline is balanced."""

from __future__ import annotations

import pytest

from bpeflow.flow import Activity, QueueDepth, Snapshot, StageTotals, WorkerState
from bpeflow.flow.bottleneck import LoadAverage

WORKING, NO_ITEM, NO_ROOM = Activity.WORKING, Activity.WAITING_FOR_ITEM, Activity.WAITING_FOR_ROOM
BOUNDS = QueueDepth(10, 1000)


def snapshot(activities: dict[str, list[Activity]], depths: list[QueueDepth]) -> Snapshot:
    stages = {stage: StageTotals(0, 0, 0, 1) for stage in ("reader", "counter", "merger")}
    queues = dict(zip(("chunks", "counts", "merged"), depths, strict=True))
    workers = [
        WorkerState(stage, number, 1, activity, 0.1)
        for stage, states in activities.items()
        for number, activity in enumerate(states)
    ]
    return Snapshot(queues, stages, workers, dict.fromkeys(queues, BOUNDS))


FULL, EMPTY = QueueDepth(10, 50), QueueDepth(0, 0)
LARGE_ITEMS, FEW = QueueDepth(1, 900), QueueDepth(2, 20)


@pytest.mark.parametrize(
    ("activities", "depths", "slow"),
    [
        ([[NO_ROOM], [WORKING, WORKING], [NO_ITEM], [NO_ITEM]], [FULL, EMPTY, EMPTY], "counter"),
        ([[NO_ROOM], [WORKING, WORKING], [NO_ITEM], [NO_ITEM]], [LARGE_ITEMS, EMPTY, EMPTY], "counter"),
        # The last chunks: the reader has ended, and the queue is far from full.
        ([[], [WORKING, WORKING], [NO_ITEM], [NO_ITEM]], [FEW, EMPTY, EMPTY], "counter"),
        # The furthest of two queues that are backed up: the counters wait for room.
        ([[NO_ROOM], [NO_ROOM, WORKING], [WORKING], [NO_ITEM]], [FULL, FULL, EMPTY], "merger"),
        ([[NO_ROOM], [NO_ROOM, NO_ROOM], [NO_ROOM], [WORKING]], [FULL, FULL, FULL], "main"),
        ([[WORKING], [NO_ITEM, NO_ITEM], [NO_ITEM], [NO_ITEM]], [EMPTY, EMPTY, EMPTY], "reader"),
        ([[WORKING], [WORKING, WORKING], [NO_ITEM], [NO_ITEM]], [EMPTY, EMPTY, EMPTY], None),
        ([[NO_ROOM], [NO_ITEM, WORKING], [NO_ITEM], [NO_ITEM]], [FULL, EMPTY, EMPTY], None),
    ],
)
def test_the_stage_behind_a_backed_up_queue_is_slow(
    activities: list[list[Activity]], depths: list[QueueDepth], slow: str | None
) -> None:
    load = LoadAverage()
    for _ in range(3):
        load.add(snapshot(dict(zip(("reader", "counter", "merger", "main"), activities, strict=True)), depths))
    assert load.bottleneck() == slow


def test_a_moment_is_no_bottleneck() -> None:
    load = LoadAverage()
    busy = {"reader": [NO_ROOM], "counter": [WORKING], "merger": [NO_ITEM], "main": [NO_ITEM]}
    load.add(snapshot(busy, [FULL, EMPTY, EMPTY]))
    load.add(snapshot(busy, [FULL, EMPTY, EMPTY]))
    load.add(snapshot({}, [EMPTY, EMPTY, EMPTY]))  # the run has ended
    assert load.bottleneck() is None


def test_averages_decide_and_not_the_last_moment() -> None:
    load = LoadAverage()
    busy = {"reader": [NO_ROOM], "counter": [WORKING], "merger": [NO_ITEM], "main": [NO_ITEM]}
    for depth in (FULL, FULL, FULL, FULL, EMPTY):
        load.add(snapshot(busy, [depth, EMPTY, EMPTY]))
    assert load.bottleneck() == "counter"
