"""The monitor: its samples are right, and it cannot disturb the run."""

import json
import logging
import os
import time
from dataclasses import asdict
from functools import partial

import flow_workers as w
import pytest
from flow_checks import leftover_threads, wait_until

from bpeflow.flow import (
    Executor,
    Monitor,
    MonitorSample,
    Pipeline,
    QueueDepth,
    QueueSpec,
    Source,
    Stage,
    StageRate,
    set_gauge,
)


def weighted_pipeline(count: int) -> Pipeline:
    stage = Stage("counter", w.pass_on, QueueSpec("chunk_queue", 4), workers=2, weigh=w.weigh_ten)
    return Pipeline(Source("chunk reader", partial(w.numbers, count)), [stage], QueueSpec("merged_queue", 4))


def test_its_thread_ends_with_a_monitor_that_was_never_exited() -> None:
    """Ctrl-C may come just before `__exit__`."""
    monitor = Monitor(weighted_pipeline(1), interval=1000, on_sample=print, processes=False).__enter__()
    assert "flow monitor" in leftover_threads()
    del monitor
    assert wait_until(lambda: "flow monitor" not in leftover_threads())


def test_it_samples_at_an_interval_and_once_at_the_end() -> None:
    samples: list[MonitorSample] = []
    pipeline = weighted_pipeline(40)
    with Monitor(pipeline, interval=0.05, on_sample=samples.append):
        run = pipeline.run()
        next(run)
        assert wait_until(lambda: len(samples) >= 3 and samples[-1].queues["merged_queue"].items == 4)
        assert wait_until(lambda: samples[-1].stages["counter"].workers_alive == 2)  # one may start late
        during = samples[-1]
        rest = list(run)
    assert len(rest) == 39

    assert {process.stage for process in during.processes} == {"main", "chunk reader", "counter"}
    assert all(process.rss_bytes > 1 << 20 for process in during.processes)
    assert during.stages["counter"].workers_alive == 2
    assert during.stages["chunk reader"].workers_alive == 1
    last = samples[-1]
    rate = last.stages["counter"]
    assert rate == StageRate(rate.items_per_second, rate.weight_per_second, 40, 400, 0, rate.workers_busy, workers=2)
    assert last.stages["chunk reader"].items == 40
    assert [process.pid for process in last.processes] == [os.getpid()]
    assert [sample.elapsed for sample in samples] == sorted(sample.elapsed for sample in samples)
    json.dumps([asdict(sample) for sample in samples])


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_workers_show_a_number_and_how_busy_they_are(executor: Executor) -> None:
    samples: list[MonitorSample] = []
    stage = Stage("counter", w.show_gauge_and_work, QueueSpec("chunk_queue", 4), workers=2)
    pipeline = Pipeline(Source("chunk reader", partial(w.numbers, 2)), [stage], QueueSpec("merged_queue", 4))
    with Monitor(pipeline, interval=1000, on_sample=samples.append):
        list(pipeline.run(executor))
    [sample] = samples
    assert (sample.stages["chunk reader"].gauge, sample.stages["counter"].gauge) == (0, 101)
    assert 0.25 < sample.stages["counter"].workers_busy * sample.elapsed < 2 * sample.elapsed
    set_gauge(5)  # outside of a pipeline it does nothing


def test_a_long_interval_gives_one_sample_and_does_not_delay_the_run() -> None:
    samples: list[MonitorSample] = []
    pipeline = weighted_pipeline(5)
    with Monitor(pipeline, interval=1000, on_sample=samples.append):
        assert len(list(pipeline.run())) == 5
    assert len(samples) == 1
    assert samples[0].stages["counter"].weight_per_second > 0


def test_the_first_sample_has_the_cpu_use_of_each_process() -> None:
    samples: list[MonitorSample] = []
    pipeline = w.simple_pipeline(w.endless, partial(w.one_then, w.spin_forever), workers=1)
    with Monitor(pipeline, interval=2.0, on_sample=samples.append):
        run = pipeline.run()
        next(run)
        assert wait_until(lambda: bool(samples), seconds=20)
        run.close()
    percent = {process.stage: process.cpu_percent for process in samples[0].processes}
    assert 0 < percent["stage 0"] < 150, percent  # however busy the machine is
    assert percent["main"] < 100, "work of the main process before the monitor started is not counted"
    assert percent["source"] < percent["stage 0"]


def test_work_before_the_monitor_started_is_not_counted() -> None:
    samples: list[MonitorSample] = []
    pipeline = w.simple_pipeline(w.endless, partial(w.one_then, w.spin_forever), workers=1)
    run = pipeline.run()
    next(run)
    time.sleep(1)
    with Monitor(pipeline, interval=0.3, on_sample=samples.append):
        assert wait_until(lambda: bool(samples), seconds=20)
    run.close()
    [percent] = [process.cpu_percent for process in samples[0].processes if process.stage == "stage 0"]
    assert 5 < percent < 150


def test_worker_threads_are_part_of_the_main_process() -> None:
    samples: list[MonitorSample] = []
    pipeline = w.simple_pipeline(partial(w.numbers, 20), partial(w.map_each, w.sleep_a_little))
    with Monitor(pipeline, 0.05, samples.append):
        list(pipeline.run("threads"))
    assert len(samples) > 1
    assert {(use.stage, use.pid) for sample in samples for use in sample.processes} == {("main", os.getpid())}


@pytest.mark.parametrize(
    ("error", "text", "traceback"),
    [(OSError("disk full"), "disk full", False), (MemoryError(), "MemoryError", False), (KeyError("x"), "'x'", True)],
)
def test_a_failing_callback_is_logged_and_does_not_end_the_run(
    caplog: pytest.LogCaptureFixture, error: Exception, text: str, traceback: bool
) -> None:
    def fail(sample: MonitorSample) -> None:
        raise error

    pipeline = weighted_pipeline(5)
    with caplog.at_level(logging.WARNING), Monitor(pipeline, interval=0.01, on_sample=fail):
        assert len(list(pipeline.run())) == 5
    assert text in caplog.text
    assert ("Traceback" in caplog.text) == traceback


def test_it_ends_when_the_run_fails() -> None:
    samples: list[MonitorSample] = []
    pipeline = w.simple_pipeline(w.endless, partial(w.fail, "kill"))
    with pytest.raises(Exception, match="SIGKILL"), Monitor(pipeline, interval=0.01, on_sample=samples.append):
        list(pipeline.run())
    assert samples[-1].stages["source"].workers_alive == 0


def test_a_sample_reads_as_one_line() -> None:
    sample = MonitorSample(
        elapsed=10.0,
        queues={
            "chunk_queue": QueueDepth(684, 50_000),
            "counter_queue": QueueDepth(3, 10),
            "merged_queue": QueueDepth(0, 0),
        },
        stages={"chunk reader": StageRate(190.2, 0, 5000, 0, 1), "counter": StageRate(180, 12.14e6, 4300, 10**9, 4)},
        processes=(),
        bounds={},
    )
    assert sample.line() == (
        "chunk_queue: 684, counter_queue: 3, merged_queue: 0 | chunk reader: 190 items/s, counter: 12.1 MB/s"
    )
