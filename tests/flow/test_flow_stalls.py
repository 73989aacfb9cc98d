"""Stalls: the stage that blocks the others is reported, and described."""

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
from flow_checks import wait_until

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


def snapshot(queued: int, *stages: list[tuple[Activity, float]]) -> Snapshot:
    """Return a snapshot of a reader, counters and the main process, given the activity and seconds of each worker."""
    names = ["reader", "counter", "main"]
    workers = [
        WorkerState(name, number, 100 + number, activity, seconds)
        for name, stage in zip(names, stages, strict=True)
        for number, (activity, seconds) in enumerate(stage)
    ]
    queues = {"chunk_queue": QueueDepth(queued, 10 * queued), "merged_queue": QueueDepth(0, 0)}
    return Snapshot(queues, dict.fromkeys(names[:2], NOTHING), workers)


WAITING_MAIN = [(ITEM, 99.0)]


@pytest.mark.parametrize(
    ("queued", "reader", "counters", "main", "stalled"),
    [
        pytest.param(
            4, [(ROOM, 70)], [(WORKING, 70), (WORKING, 1)], WAITING_MAIN, ["counter"], id="one item takes long"
        ),
        pytest.param(4, [(ROOM, 70)], [(WORKING, 50), (WORKING, 1)], WAITING_MAIN, [], id="not long enough yet"),
        pytest.param(
            0, [(WORKING, 61)], [(ITEM, 61), (ITEM, 61)], WAITING_MAIN, ["reader"], id="a source that works long"
        ),
        pytest.param(0, [(STARTING, 61)], [(ITEM, 61)], WAITING_MAIN, ["reader"], id="a process that does not start"),
        pytest.param(
            4, [(ROOM, 61)], [(ITEM, 61), (ITEM, 61)], WAITING_MAIN, ["reader", "counter"], id="a lock is held"
        ),
        pytest.param(4, [(ROOM, 9)], [(ITEM, 61), (WORKING, 9)], WAITING_MAIN, [], id="items for another worker"),
        pytest.param(0, [], [(ITEM, 61)], WAITING_MAIN, ["counter"], id="the end of the stream does not arrive"),
        pytest.param(4, [(HANDING_ON, 61)], [(WORKING, 5)], WAITING_MAIN, [], id="the last items wait in the pipe"),
        pytest.param(4, [(ROOM, 70)], [(ROOM, 70)], [(WORKING, 70)], ["main"], id="a slow caller"),
        pytest.param(0, [], [], [], [], id="nothing runs"),
    ],
)
def test_the_stage_that_others_wait_for_is_reported(
    queued: int,
    reader: list[tuple[Activity, float]],
    counters: list[tuple[Activity, float]],
    main: list[tuple[Activity, float]],
    stalled: list[str],
) -> None:
    stalls = find_stalls(snapshot(queued, reader, counters, main), patience=60)
    assert [stall.stage for stall in stalls] == stalled


def test_a_stall_lists_its_queues_and_all_its_workers() -> None:
    [stall] = find_stalls(snapshot(4, [(ROOM, 70)], [(WORKING, 70), (ITEM, 1)], WAITING_MAIN), patience=60)
    assert list(stall.queues) == ["chunk_queue", "merged_queue"]
    assert [state.worker for state in stall.hanging] == [0]
    assert [state.worker for state in stall.workers] == [0, 1]
    assert stall.line() == "counter: no progress for 70 s (1 of 2 workers)"
    assert "Its other workers: 1 waiting for an item. chunk_queue holds 4 items, merged_queue" in stall.describe()


def stalled(samples: list[MonitorSample]) -> list[str]:
    return [stall.stage for sample in samples[-1:] for stall in sample.stalls]


def stall_of(stage: str, pipeline: Pipeline, stop: bool = False) -> tuple[Stall, str]:
    """Run a pipeline until this stage stalls, stopping its workers if `stop`. Return the stall and its description."""
    samples: list[MonitorSample] = []
    with ThreadPoolExecutor(1) as pool, Monitor(pipeline, 0.1, samples.append, processes=False, patience=0.5):
        run = pool.submit(lambda: deque(pipeline.run(), maxlen=0))
        assert wait_until(lambda: pipeline.snapshot().stages["stage 0"].items_out > 0, seconds=20)
        pids = pipeline.snapshot().pids
        for (name, _), pid in pids.items():
            if stop and name == stage:
                os.kill(pid, signal.SIGSTOP)
        try:
            assert wait_until(lambda: stage in stalled(samples), 20)
            # A process stopped in a queue operation may block both ends, so its neighbour may be reported too.
            [stall] = [stall for stall in samples[-1].stalls if stall.stage == stage]
            text = stall.describe()
        finally:
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            run.result()
    assert not samples[-1].stalls, "no stall after the end of the run"
    json.dumps([sample.to_dict() for sample in samples])
    assert any(f" | {stage}: no progress for " in sample.line() for sample in samples)
    return stall, text


@pytest.mark.parametrize(
    ("function", "process_state"), [(w.one_then_sleep, "sleeping, 0 % CPU"), (w.one_then_spin, "running")]
)
def test_the_description_distinguishes_sleep_from_endless_work(function: Any, process_state: str) -> None:
    stall, text = stall_of("stage 0", w.simple_pipeline(w.endless, function, workers=1))
    assert len(stall.hanging) == 1
    assert stall.queues["queue 0"].items > 0
    assert text.startswith("stage 'stage 0' makes no progress: 1 of 1 worker for ")
    assert "working on one item for" in text
    assert process_state in text


@pytest.mark.parametrize("stage", ["source", "stage 0"])
def test_a_stage_whose_processes_are_all_stopped_is_reported(stage: str) -> None:
    _, text = stall_of(stage, w.simple_pipeline(w.endless, w.pass_on, workers=2), stop=True)
    assert ", stopped, 0 % CPU" in text


def test_an_inline_run_that_waits_for_its_source_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    def slow() -> Iterator[int]:
        time.sleep(0.8)
        yield 1

    pipeline = w.simple_pipeline(slow, w.pass_on, workers=1)
    with stall_watch(pipeline, patience=0.3):
        assert list(pipeline.run(inline=True)) == [1]
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0].startswith("stage 'source' makes no progress: 1 of 1 worker for 0 s. the main process (pid ")
    assert messages[-1] == "stage 'source' makes progress again"


def test_a_long_stall_is_logged_each_time_it_doubles(caplog: pytest.LogCaptureFixture) -> None:
    log = StallLog()
    for seconds in range(60, 1000, 10):
        log.update(find_stalls(snapshot(4, [(WORKING, seconds)], [(ITEM, 1)], WAITING_MAIN), patience=60))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 5, "at 60, 120, 240, 480, 960 s"
