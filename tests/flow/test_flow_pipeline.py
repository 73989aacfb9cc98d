"""Pipelines that succeed: the same results for every number of workers, bounds and start method."""

import gc
import os
import threading
import time
from collections import Counter
from functools import partial
from multiprocessing import connection
from typing import Any

import flow_workers as w
import psutil
import pytest
from flow_checks import leftover_threads, leftover_workers, wait_until

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, supervisor


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("max_items", [1, 3, 100])
def test_every_item_comes_out_once(workers: int, max_items: int) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 200), w.square, w.pass_on, workers=workers, max_items=max_items)
    assert sorted(pipeline.run()) == [number * number for number in range(200)]


def test_one_worker_per_stage_keeps_the_order() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 100), w.square, w.pass_on, workers=1)
    assert list(pipeline.run()) == [number * number for number in range(100)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_every_start_method_gives_the_same_results(start_method: str) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 50), w.square, w.total, start_method=start_method)
    assert sum(pipeline.run()) == sum(number * number for number in range(50))


def test_a_stage_flushes_when_its_inputs_end() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 100), w.total, workers=3)
    totals = list(pipeline.run())
    assert len(totals) == 3
    assert sum(totals) == sum(range(100))


def test_a_pipeline_without_stages_yields_the_items_of_its_source() -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 10)).run()) == list(range(10))


@pytest.mark.parametrize("inline", [False, True])
def test_an_empty_source_ends_every_stage(inline: bool) -> None:
    pipeline = w.simple_pipeline(w.nothing, w.pass_on, w.total, w.collect)
    assert sorted(value for values in pipeline.run(inline=inline) for value in values) == [0] * (1 if inline else 2)


@pytest.mark.parametrize("inline", [False, True])
def test_stages_may_yield_nothing(inline: bool) -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 20), w.swallow, w.pass_on).run(inline=inline)) == []


def test_a_stage_may_modify_an_item_after_yielding_it() -> None:
    expected = [list(range(end)) for end in range(1, 6)]
    for inline in (False, True):
        pipeline = w.simple_pipeline(partial(w.numbers, 5), w.yield_and_change, workers=1)
        assert list(pipeline.run(inline=inline)) == expected


def test_routed_items_reach_only_their_owner() -> None:
    owners = Stage("owner", w.collect, QueueSpec("owned", 3, route=w.identity), workers=3)
    before = Stage("before", w.pass_on, QueueSpec("numbers", 3), workers=2)
    pipeline = Pipeline(Source("source", partial(w.numbers, 90)), [before, owners])
    owned = sorted(sorted(values) for values in pipeline.run())
    assert owned == [list(range(remainder, 90, 3)) for remainder in range(3)]


def test_reports_count_the_items_of_each_worker() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 60), w.pass_on, w.total)
    assert sum(pipeline.run()) == sum(range(60))
    reports = pipeline.reports
    workers = [("source", 0), ("stage 0", 0), ("stage 0", 1), ("stage 1", 0), ("stage 1", 1)]
    assert [(report.stage, report.worker) for report in reports] == workers
    assert reports[0].items_out == 60
    assert sum(report.items_in for report in reports if report.stage == "stage 1") == 60
    assert all(
        report.wall_seconds > 0 and report.cpu_seconds > 0 and report.peak_memory > 1 << 20 for report in reports
    )


def test_snapshots_before_during_and_after_a_run() -> None:
    stage = Stage("stage", w.pass_on, QueueSpec("in", 4), workers=2, weigh=w.weigh_ten)
    pipeline = Pipeline(Source("source", partial(w.numbers, 30)), [stage], QueueSpec("out", 4))
    assert pipeline.snapshot().queues["in"].items == 0
    assert pipeline.snapshot().pids == {}

    run = pipeline.run()
    next(run)
    snapshot = pipeline.snapshot()
    assert set(snapshot.pids) == {("source", 0), ("stage", 0), ("stage", 1)}
    assert snapshot.stages["stage"].workers_alive == 2
    assert all(psutil.pid_exists(pid) for pid in snapshot.pids.values())
    assert wait_until(lambda: pipeline.snapshot().queues["out"].items == 4)
    assert pipeline.snapshot().queues["out"].bytes > 0

    assert len(list(run)) == 29
    after = pipeline.snapshot()
    assert after.pids == {}
    assert all(depth.items == 0 and depth.bytes == 0 for depth in after.queues.values())
    assert after.stages["stage"].items_in == after.stages["stage"].items_out == 30
    assert after.stages["stage"].weight_done == 300


def test_a_pipeline_runs_once() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 3), w.pass_on)
    assert len(list(pipeline.run())) == 3
    with pytest.raises(FlowError, match="has already run"):
        pipeline.run()


def test_leaving_the_loop_early_ends_everything_at_once() -> None:
    for item in w.simple_pipeline(w.endless, w.pass_on, w.pass_on).run():
        if item > 20:
            break
    assert not leftover_workers()
    assert not leftover_threads()


def test_an_exception_in_the_loop_body_ends_everything() -> None:
    def loop() -> None:
        for _ in w.simple_pipeline(w.endless, w.pass_on).run():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop()
    gc.collect()
    assert not leftover_workers()


def test_a_run_garbage_collected_in_the_supervisor_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_and_collect(*args: Any) -> Any:
        ready = connection.wait(*args)
        gc.collect()
        return ready

    monkeypatch.setattr(supervisor, "wait", wait_and_collect)
    gc.disable()
    try:
        run = w.simple_pipeline(partial(w.numbers, 3), w.pass_on).run()
        next(run)
        cycle: list[Any] = [run]
        cycle.append(cycle)
        del run, cycle
        assert wait_until(lambda: not leftover_threads())
        assert not leftover_workers()
    finally:
        gc.enable()


def test_a_run_without_next_starts_no_process() -> None:
    run = w.simple_pipeline(w.endless, w.pass_on).run()
    assert not leftover_workers()
    del run


def test_a_pipeline_runs_in_a_thread_other_than_the_main_one() -> None:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.extend(w.simple_pipeline(partial(w.numbers, 9), w.total).run()))
    thread.start()
    thread.join()
    assert sum(results) == sum(range(9))


def test_two_pipelines_run_side_by_side() -> None:
    runs = [w.simple_pipeline(partial(w.numbers, 40), w.square).run() for _ in range(2)]
    items = [item for pair in zip(*runs, strict=True) for item in pair]
    assert Counter(items) == Counter([number * number for number in range(40)] * 2)


@pytest.mark.timeout(120)
def test_thirty_runs_leave_nothing_behind() -> None:
    def run_some(count: int) -> None:
        for number in range(count):
            run = w.simple_pipeline(partial(w.numbers, 10), w.square).run()
            if number % 3 == 0:
                next(run)
                run.close()
            elif number % 3 == 1:
                assert len(list(run)) == 10
            else:
                with pytest.raises(ValueError, match="third"):
                    list(w.simple_pipeline(w.endless, partial(w.fail, "raise")).run())

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    run_some(3)  # starts what multiprocessing keeps: the fork server, the resource tracker, a memory arena
    before = open_files()
    start = time.monotonic()
    run_some(30)
    assert wait_until(lambda: open_files() <= before), (before, open_files())
    assert time.monotonic() - start < 60
