"""Stalls: which stage is named when nothing goes on, and what is said of it."""

import json
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flow_workers as w
import pytest
from flow_checks import comes_true

from bpeflow.flow import (
    Activity,
    Monitor,
    MonitorSample,
    Pipeline,
    QueueDepth,
    Snapshot,
    StageTotals,
    Stall,
    WorkerDiedError,
    WorkerState,
    stall_watch,
)
from bpeflow.flow.stalls import StallLog, find_stalls

STARTING, WORKING, ITEM, ROOM, HANDING_ON = Activity
NOTHING = StageTotals(items_in=0, items_out=0, weight_done=0, workers_alive=0)


def snapshot(queued: int, *crews: list[tuple[Activity, float]]) -> Snapshot:
    """A reader, counters and the main process, of which each worker does something for so many seconds."""
    names = ["reader", "counter", "main"]
    workers = [
        WorkerState(name, number, 100 + number, activity, seconds)
        for name, crew in zip(names, crews, strict=True)
        for number, (activity, seconds) in enumerate(crew)
    ]
    queues = {"chunk_queue": QueueDepth(queued, 10 * queued), "merged_queue": QueueDepth(0, 0)}
    return Snapshot(queues, dict.fromkeys(names[:2], NOTHING), workers)


WAITING_MAIN = [(ITEM, 99.0)]


@pytest.mark.parametrize(
    ("queued", "reader", "counters", "main", "stalled"),
    [
        pytest.param(4, [(ROOM, 70)], [(WORKING, 70), (WORKING, 1)], WAITING_MAIN, ["counter"], id="one item for long"),
        pytest.param(4, [(ROOM, 70)], [(WORKING, 50), (WORKING, 1)], WAITING_MAIN, [], id="not yet for long"),
        pytest.param(0, [(WORKING, 61)], [(ITEM, 61), (ITEM, 61)], WAITING_MAIN, ["reader"], id="a source at work"),
        pytest.param(0, [(STARTING, 61)], [(ITEM, 61)], WAITING_MAIN, ["reader"], id="a process that does not start"),
        pytest.param(
            4, [(ROOM, 61)], [(ITEM, 61), (ITEM, 61)], WAITING_MAIN, ["reader", "counter"], id="a lock is held"
        ),
        pytest.param(4, [(ROOM, 9)], [(ITEM, 61), (WORKING, 9)], WAITING_MAIN, [], id="items for another worker"),
        pytest.param(0, [], [(ITEM, 61)], WAITING_MAIN, ["counter"], id="the end does not come"),
        pytest.param(4, [(HANDING_ON, 61)], [(WORKING, 5)], WAITING_MAIN, [], id="the last items wait in the pipe"),
        pytest.param(4, [(ROOM, 70)], [(ROOM, 70)], [(WORKING, 70)], ["main"], id="a caller who takes long"),
        pytest.param(0, [], [], [], [], id="nothing runs"),
    ],
)
def test_the_stage_that_others_wait_for_is_named(
    queued: int,
    reader: list[tuple[Activity, float]],
    counters: list[tuple[Activity, float]],
    main: list[tuple[Activity, float]],
    stalled: list[str],
) -> None:
    stalls = find_stalls(snapshot(queued, reader, counters, main), patience=60)
    assert [stall.stage for stall in stalls] == stalled


def test_a_stall_has_its_queues_and_all_its_workers() -> None:
    [stall] = find_stalls(snapshot(4, [(ROOM, 70)], [(WORKING, 70), (ITEM, 1)], WAITING_MAIN), patience=60)
    assert list(stall.queues) == ["chunk_queue", "merged_queue"]
    assert [state.worker for state in stall.hanging] == [0]
    assert [state.worker for state in stall.workers] == [0, 1]
    assert stall.line() == "counter: no progress for 70 s (1 of 2 workers)"
    assert "Its other workers: 1 waiting for an item. chunk_queue holds 4 items, merged_queue" in stall.describe()


def stalled(samples: list[MonitorSample]) -> list[str]:
    return [stall.stage for sample in samples[-1:] for stall in sample.stalls]


def stall_of(stage: str, pipeline: Pipeline, stop: bool = False) -> tuple[Stall, str]:
    """Run a pipeline until this stage stalls, maybe because its workers are stopped; what is found, and said."""
    samples: list[MonitorSample] = []
    with ThreadPoolExecutor(1) as pool, Monitor(pipeline, 0.1, samples.append, processes=False, patience=0.5):
        run = pool.submit(lambda: deque(pipeline.run(), maxlen=0))
        assert comes_true(lambda: pipeline.snapshot().stages["stage 0"].items_out > 0, seconds=20)
        pids = pipeline.snapshot().pids
        for (name, _), pid in pids.items():
            if stop and name == stage:
                os.kill(pid, signal.SIGSTOP)
        try:
            assert comes_true(lambda: stage in stalled(samples), 20)
            # Stopped in the middle of a queue, a process may hold it up at both ends: then its neighbour is named, too.
            [stall] = [stall for stall in samples[-1].stalls if stall.stage == stage]
            text = stall.describe()
        finally:
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            run.result()
    assert not samples[-1].stalls, "nothing stalls when all is over"
    json.dumps([sample.to_dict() for sample in samples])
    assert any(f" | {stage}: no progress for " in sample.line() for sample in samples)
    return stall, text


@pytest.mark.parametrize(("function", "look"), [(w.one_then_sleep, "sleeping, 0 % CPU"), (w.one_then_spin, "running")])
def test_sleep_and_endless_work_are_told_apart(function: Any, look: str) -> None:
    stall, text = stall_of("stage 0", w.simple_pipeline(w.endless, function, workers=1))
    assert len(stall.hanging) == 1
    assert stall.queues["queue 0"].items > 0
    assert text.startswith("stage 'stage 0' makes no progress: 1 of 1 worker for ")
    assert "at work on one item for" in text
    assert look in text


@pytest.mark.parametrize("stage", ["source", "stage 0"])
def test_a_stage_of_which_all_processes_are_stopped_is_named(stage: str) -> None:
    _, text = stall_of(stage, w.simple_pipeline(w.endless, w.pass_on, workers=2), stop=True)
    assert ", stopped, 0 % CPU" in text


def test_an_inline_run_that_waits_for_its_source_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def slow() -> Iterator[int]:
        time.sleep(0.8)
        yield 1

    pipeline = w.simple_pipeline(slow, w.pass_on, workers=1)
    with stall_watch(pipeline, patience=0.3):
        assert list(pipeline.run(inline=True)) == [1]
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("stage 'source' makes no progress: 1 of 1 worker for 0 s. the main process (pid ")
    assert said[-1] == "stage 'source' makes progress again"


def test_a_stall_that_lasts_is_told_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    log = StallLog()
    for seconds in range(60, 1000, 10):
        log.hear(find_stalls(snapshot(4, [(WORKING, seconds)], [(ITEM, 1)], WAITING_MAIN), patience=60))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 5, "at 60, 120, 240, 480, 960 s"
