"""Workers that block the others are reported, and the slow stage is named, but nothing if the pipeline is balanced."""

import logging
import os
import re
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import flow_workers as w
import pytest
from flow_checks import pids, wait_until

from bpeflow.flow import Executor, Monitor, MonitorSample, Pipeline, WorkerDiedError, monitor, stall_watch
from bpeflow.flow.monitor import find_bottleneck, find_stall
from bpeflow.flow.pipeline import Snapshot
from bpeflow.flow.shared import Activity, Meter

STARTING, WORKING, ITEM, ROOM = Activity


def snapshot(*stages: list[tuple[Activity, float]]) -> Snapshot:
    """Return a snapshot of a reader, counters and the main process, given the activity and seconds of each worker."""
    meters = {
        name: [Meter(pid=1 << 30, activity=activity, since=-round(seconds * 1e9)) for activity, seconds in stage]
        for name, stage in zip(["reader", "counter", "main"], stages, strict=True)
    }
    return Snapshot({}, meters, time=0)


MAIN = [(ITEM, 99.0)]


@pytest.mark.parametrize(
    ("reader", "counters", "main", "stalled"),
    [
        pytest.param([(ROOM, 70)], [(WORKING, 70), (WORKING, 1)], MAIN, ["counter 0"], id="one item takes long"),
        pytest.param([(ROOM, 70)], [(WORKING, 50), (WORKING, 1)], MAIN, [], id="not long enough yet"),
        pytest.param([(WORKING, 61)], [(ITEM, 61), (ITEM, 1)], MAIN, ["reader 0"], id="a source that works long"),
        pytest.param([(STARTING, 61)], [(ITEM, 61)], MAIN, ["reader 0"], id="a slow start"),
        pytest.param([(ROOM, 61)], [(ITEM, 61)], MAIN, ["reader 0", "counter 0", "main 0"], id="a lock is held"),
        pytest.param([(ROOM, 9)], [(ITEM, 61), (WORKING, 9)], MAIN, [], id="items for another worker"),
        pytest.param([], [(ITEM, 61)], MAIN, ["counter 0", "main 0"], id="the end of the stream does not arrive"),
        pytest.param([(ROOM, 7)], [(ROOM, 70)], [(WORKING, 70)], ["main 0"], id="a slow caller"),
        pytest.param([], [], [], [], id="nothing runs"),
    ],
)
def test_the_workers_that_others_wait_for_are_reported(
    reader: list[tuple[Activity, float]],
    counters: list[tuple[Activity, float]],
    main: list[tuple[Activity, float]],
    stalled: list[str],
) -> None:
    stall = find_stall(snapshot(reader, counters, main), patience=60)
    assert re.findall(r"(?:: |, )(\w+ \d) ", stall) == stalled


def test_a_stall_lasts_as_long_as_its_latest_worker_and_describes_a_few() -> None:
    stall = find_stall(snapshot([(WORKING, 73.2)], [(WORKING, 80)] * 9, [(ITEM, 75)]), patience=60)
    assert stall.startswith(
        f"no progress for 73 s: reader 0 working (pid {1 << 30}), counter 0 working (pid {1 << 30}), counter 1"
    )
    assert stall.endswith(", and 2 more")


def stall_of(text: str, pipeline: Pipeline, stop: str | None = None) -> None:
    """Run a pipeline until a stall is described that matches, stopping the workers of one stage."""

    def stall() -> str:
        return find_stall(pipeline.snapshot(), patience=0.5)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(lambda: deque(pipeline.run(), maxlen=0))
        assert wait_until(lambda: pipeline.snapshot().total("stage 0", "items_out") > 0)
        for (name, _), pid in pids(pipeline).items():
            if name == stop:
                os.kill(pid, signal.SIGSTOP)
        try:
            assert wait_until(lambda: bool(re.search(text, stall()))), stall()
        finally:
            os.kill(pids(pipeline)["source", 0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            run.result()
    assert not stall(), "no stall after the end of the run"


def test_the_description_distinguishes_sleep_from_endless_work() -> None:
    for hang, state in [(w.sleep_forever, "sleeping"), (w.spin_forever, "running")]:
        pipeline = w.simple_pipeline(w.endless, partial(w.one_then, hang), workers=1)
        stall_of(rf"no progress for \d s: stage 0 0 working \(pid \d+, {state}\)$", pipeline)


def test_a_stage_whose_processes_are_all_stopped_is_reported() -> None:
    for stage in ["source", "stage 0"]:
        stall_of(r", stopped\)", w.simple_pipeline(w.endless, w.pass_on, workers=2), stop=stage)


def test_a_run_in_threads_that_waits_for_its_source_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    def slow() -> Iterator[int]:
        assert wait_until(lambda: "no progress" in caplog.text)
        yield 1
        assert wait_until(lambda: "progress again" in caplog.text)

    pipeline = w.simple_pipeline(slow, w.pass_on, workers=1)
    with stall_watch(pipeline, patience=0.3):
        assert list(pipeline.run("threads")) == [1]
    messages = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"no progress for \d+ s: source working \(pid \d+, \w+\)", messages[0])
    assert messages[-1] == "progress again"


def test_each_stall_is_logged_once_with_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = stall_watch(w.simple_pipeline(w.nothing))
    for stall in ["", *(f"no progress for {seconds} s: x" for seconds in range(60, 1000, 10)), "", "", "stuck"]:
        monkeypatch.setattr(monitor, "find_stall", lambda *_, stall=stall: stall)
        watch.deliver()
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["no progress for 60 s: x", "progress again", "stuck"]


# ---- the slow stage: seconds of starting, working, waiting for an item and for room

WORKS, STARVES, BLOCKED, HALF, ENDED = (0, 9, 1, 0), (0, 1, 9, 0), (0, 1, 0, 9), (0, 5, 5, 0), (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("reader", "counter", "merger", "main", "slow"),
    [
        pytest.param(BLOCKED, WORKS, STARVES, STARVES, "counter", id="one is slow"),
        pytest.param(BLOCKED, BLOCKED, WORKS, STARVES, "merger", id="the last of two that are backed up"),
        pytest.param(BLOCKED, BLOCKED, BLOCKED, WORKS, "main", id="the caller"),
        pytest.param(ENDED, WORKS, STARVES, STARVES, "counter", id="the last chunks"),
        pytest.param(WORKS, STARVES, STARVES, STARVES, "reader", id="the source"),
        pytest.param(WORKS, WORKS, STARVES, STARVES, None, id="balanced"),
        pytest.param(BLOCKED, HALF, STARVES, STARVES, None, id="an uneven load"),
        pytest.param(ENDED, ENDED, ENDED, ENDED, None, id="nothing runs"),
    ],
)
def test_the_stage_that_others_wait_for_is_slow(
    reader: tuple[int, ...], counter: tuple[int, ...], merger: tuple[int, ...], main: tuple[int, ...], slow: str | None
) -> None:
    def after(past: int, **spent: tuple[int, ...]) -> Snapshot:
        meters = {stage: [Meter(past=tuple((past + now) * 10**9 for now in row))] for stage, row in spent.items()}
        return Snapshot({}, meters, time=0)

    before = after(50, reader=ENDED, counter=ENDED, merger=ENDED, main=ENDED)
    now = after(50, reader=reader, counter=counter, merger=merger, main=main)
    assert find_bottleneck(before, now) == slow


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_the_bottleneck_of_a_run_is_in_its_sample(executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 30), w.pass_on, partial(w.map_each, w.sleep_a_little), workers=1)
    samples: list[MonitorSample] = []
    with Monitor(pipeline, 0.25, samples.append, processes=False):
        assert len(list(pipeline.run(executor))) == 30
    assert "stage 1" in {sample.bottleneck for sample in samples}
