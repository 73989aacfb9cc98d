"""Pipelines that succeed: the same results for every number of workers, all bounds, start methods and executors."""

import doctest
import gc
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flow_workers as w
import psutil
import pytest
from flow_checks import ends_soon, leftover_threads, leftover_workers, pids, wait_until

import bpeflow.flow
from bpeflow.flow import Executor, FlowError, Pipeline, QueueSpec, Source, Stage, in_order


@pytest.fixture(params=["processes", "threads"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param  # type: ignore[no-any-return]


def test_the_example_of_the_package_docstring_runs() -> None:
    results = doctest.testmod(bpeflow.flow)
    assert results.attempted >= 5
    assert results.failed == 0


@pytest.mark.parametrize(("workers", "max_items"), [(1, 1), (1, 100), (2, 3), (5, 1), (5, 100)])
def test_every_item_comes_out_once(workers: int, max_items: int, executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 200), w.square, w.pass_on, workers=workers, max_items=max_items)
    assert sorted(pipeline.run(executor)) == [number * number for number in range(200)]


def test_one_worker_per_stage_keeps_the_order(executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 100), w.square, w.pass_on, workers=1)
    assert list(pipeline.run(executor)) == [number * number for number in range(100)]


def test_a_stage_flushes_when_its_inputs_end(executor: Executor) -> None:
    totals = list(w.simple_pipeline(partial(w.numbers, 100), w.total, workers=3).run(executor))
    assert len(totals) == 3
    assert sum(totals) == sum(range(100))


def test_a_pipeline_without_stages_yields_the_items_of_its_source(executor: Executor) -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 10)).run(executor)) == list(range(10))


def test_an_empty_source_ends_every_stage(executor: Executor) -> None:
    pipeline = w.simple_pipeline(w.nothing, w.pass_on, w.total, w.collect)
    assert sorted(value for values in pipeline.run(executor) for value in values) == [0, 0]


def test_stages_may_yield_nothing(executor: Executor) -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 20), w.swallow, w.pass_on).run(executor)) == []


def test_a_stage_may_modify_an_item_after_yielding_it(executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 5), w.yield_and_change, workers=1)
    assert list(pipeline.run(executor)) == [list(range(end)) for end in range(1, 6)]


def test_none_is_an_item_like_any_other(executor: Executor) -> None:
    assert list(w.simple_pipeline(partial(iter, [None] * 3), w.pass_on).run(executor)) == [None] * 3


def test_an_item_that_cannot_be_pickled_fails_in_its_writer(executor: Executor) -> None:
    with pytest.raises(Exception, match=r"pickle|local object"):
        list(w.simple_pipeline(w.endless, partial(w.fail, "unpicklable")).run(executor))


def test_an_item_that_cannot_be_loaded_fails_in_its_reader(executor: Executor) -> None:
    for functions in ([w.unloadable, w.pass_on], [w.unloadable]):
        with ends_soon(), pytest.raises(LookupError, match="cannot be loaded"):
            list(w.simple_pipeline(w.endless, *functions).run(executor))


def test_a_stage_that_returns_early_is_an_error_instead_of_losing_data(executor: Executor) -> None:
    with ends_soon(), pytest.raises(FlowError, match="'stage 0' returned before the end of its input"):
        list(w.simple_pipeline(w.endless, w.take_only_one).run(executor))


def test_a_stage_may_take_exactly_its_inputs_without_reaching_their_end(executor: Executor) -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 1), w.take_only_one, workers=1).run(executor)) == [0]


def test_routed_items_reach_only_their_owner(executor: Executor) -> None:
    owners = Stage("owner", w.collect, QueueSpec("owned", 3, route=w.identity), workers=3)
    before = Stage("before", w.pass_on, QueueSpec("numbers", 3), workers=2)
    pipeline = Pipeline(Source("source", partial(w.numbers, 90)), [before, owners])
    owned = sorted(sorted(values) for values in pipeline.run(executor))
    assert owned == [list(range(remainder, 90, 3)) for remainder in range(3)]


def test_reports_count_the_work_of_each_stage(executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 60), w.pass_on, w.total)
    assert sum(pipeline.run(executor)) == sum(range(60))
    reports = pipeline.reports
    assert {stage: report.workers for stage, report in reports.items()} == {"source": 1, "stage 0": 2, "stage 1": 2}
    assert reports["source"].items_out == reports["stage 0"].items_in == reports["stage 1"].items_in == 60
    for report in reports.values():
        assert 0 < report.seconds < 100
        assert (report.cpu_seconds or 0) > 0
        assert (report.peak_memory_bytes or 0) > 1 << 20


def test_snapshots_before_during_and_after_a_run(executor: Executor) -> None:
    stage = Stage("stage", w.pass_on, QueueSpec("in", 4), workers=2, weigh=w.weigh_ten)
    pipeline = Pipeline(Source("source", partial(w.numbers, 30)), [stage], QueueSpec("out", 4))
    assert pipeline.snapshot().queues["in"].items == 0
    assert pids(pipeline) == {}

    run = pipeline.run(executor)
    next(run)
    assert wait_until(lambda: set(pids(pipeline)) == {("source", 0), ("stage", 0), ("stage", 1)})
    snapshot = pipeline.snapshot()
    assert {pid == os.getpid() for pid in pids(pipeline).values()} == {executor == "threads"}
    assert all(psutil.pid_exists(pid) for pid in pids(pipeline).values())
    assert [stage for stage, *_ in snapshot.running()].count("stage") == 2
    assert snapshot.running()[-1][0] == "main"
    if executor == "processes":
        assert wait_until(lambda: pipeline.snapshot().queues["out"].items == 4)
        assert pipeline.snapshot().queues["out"].bytes > 0

    assert len(list(run)) == 29
    after = pipeline.snapshot()
    assert pids(pipeline) == {}
    assert after.running() == []
    assert all(depth.items == 0 and depth.bytes == 0 for depth in after.queues.values())
    assert after.total("stage", "items_in") == after.total("stage", "items_out") == 30
    assert after.total("stage", "weight_done") == 300


def test_a_pipeline_runs_once(executor: Executor) -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 3), w.pass_on)
    assert len(list(pipeline.run(executor))) == 3
    with pytest.raises(FlowError, match="has already run"):
        pipeline.run(executor)


def break_out(run: Iterator[int]) -> None:
    for item in run:
        if item > 20:
            break


def raise_in_the_loop(run: Iterator[int]) -> None:
    with pytest.raises(KeyError):
        for item in run:
            raise KeyError(item)


def never_start(run: Iterator[int]) -> None:
    assert not leftover_workers()


def collect_in_a_cycle(run: Any) -> None:
    next(run)
    cycle = [run]
    cycle.append(cycle)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", [break_out, raise_in_the_loop, never_start, collect_in_a_cycle])
def test_an_early_end_leaves_nothing(end: Callable[[Any], None], executor: Executor) -> None:
    end(w.simple_pipeline(w.endless, w.pass_on, w.pass_on).run(executor))
    gc.collect()
    assert not leftover_workers()
    assert not leftover_threads()


def test_pipelines_run_in_threads_other_than_the_main_one(executor: Executor) -> None:
    results: list[int] = []

    def run() -> None:
        results.extend(w.simple_pipeline(partial(w.numbers, 9), w.total).run(executor))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == 3 * sum(range(9))


def test_two_pipelines_run_side_by_side(executor: Executor) -> None:
    runs = [w.simple_pipeline(partial(w.numbers, 40), w.square).run(executor) for _ in range(2)]
    items = [item for pair in zip(*runs, strict=True) for item in pair]
    assert Counter(items) == Counter([number * number for number in range(40)] * 2)


def test_a_pipeline_runs_within_a_stage_of_another(executor: Executor) -> None:
    stage = partial(w.map_each, partial(w.squares_in, executor))
    assert list(w.simple_pipeline(partial(w.numbers, 3), stage, workers=1).run(executor)) == [[], [0], [0, 1]]


@pytest.mark.slow
def test_runs_leave_nothing_behind(executor: Executor) -> None:
    def run_some(count: int) -> None:
        for number in range(count):
            run = w.simple_pipeline(partial(w.numbers, 10), w.square).run(executor)
            if number % 3 == 0:
                next(run)
                run.close()
            elif number % 3 == 1:
                assert len(list(run)) == 10
            else:
                with pytest.raises(ValueError, match="third"):
                    list(w.simple_pipeline(w.endless, partial(w.fail, "raise")).run(executor))

    def held() -> tuple[int, int, int]:
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        return descriptors, threading.active_count(), len(psutil.Process().children(recursive=True))

    run_some(3)  # starts the fork server
    before = held()
    run_some(6)
    assert wait_until(lambda: held() <= before), (before, held())


def test_errors_and_threads_do_without_the_machinery_of_processes() -> None:
    code = "import sys, bpeflow.flow.errors; print(*sys.modules); bpeflow.flow.Pipeline; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    errors, pipeline = ({name for name in line.split() if "bpeflow.flow" in name} for line in output.splitlines())
    assert errors == {"bpeflow.flow", "bpeflow.flow.errors"}
    assert "bpeflow.flow.threads" in pipeline
    assert not {f"bpeflow.flow.{name}" for name in ("processes", "pipes", "monitor")} & pipeline


def test_in_order_restores_the_order_of_results() -> None:
    assert list(in_order([2, 0, 1, 4, 3], w.identity)) == [0, 1, 2, 3, 4]
