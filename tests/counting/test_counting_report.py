"""Stages of several pipelines add up by whether those ran one after another or at the same time."""

from __future__ import annotations

from bpeflow.counting.report import StageReport, combine_stages, complete_stages, describe_workers
from bpeflow.flow import WorkerReport


def worker(stage: str, number: int, seconds: float, peak_memory: int = 10) -> WorkerReport:
    return WorkerReport(
        stage=stage,
        worker=number,
        items_in=3,
        items_out=2,
        wall_seconds=seconds,
        cpu_seconds=seconds / 2,
        weight_done=1_000_000,
        peak_memory=peak_memory,
    )


def stage(workers: int, items: int, seconds: float, cpu_seconds: float, size: int, peak_memory: int) -> StageReport:
    return StageReport(
        workers=workers,
        items_in=3 * items,
        items_out=2 * items,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=peak_memory,
        bytes=size,
    )


ONE = describe_workers([worker("chunk reader", 0, 1.0), worker("counter", 0, 2.0), worker("counter", 1, 4.0, 20)])


def test_the_workers_of_a_stage_run_at_the_same_time() -> None:
    assert {"chunk reader": stage(1, 1, 1.0, 0.5, 10**6, 10), "counter": stage(2, 2, 4.0, 3.0, 2 * 10**6, 20)} == ONE


def test_pipelines_run_one_after_another() -> None:
    more = describe_workers([worker("counter", 0, 1.0), worker("merger", 0, 1.0)])
    both = combine_stages([ONE, more])
    assert list(both) == ["chunk reader", "counter", "merger"]
    assert both["counter"] == stage(2, 3, 5.0, 3.5, 3 * 10**6, 20)
    assert both["merger"] == more["merger"]


def test_pipelines_of_several_machines_run_at_the_same_time() -> None:
    both = combine_stages([ONE, ONE], workers=sum, seconds=max)
    assert both["counter"] == stage(4, 4, 4.0, 6.0, 4 * 10**6, 20)


def test_rates_are_those_of_the_text_for_stages_that_read_it() -> None:
    reducer = StageReport(workers=1, seconds=0.0, bytes=5)
    complete = complete_stages(ONE, 8_000_000, reducer)
    rates = {name: (stage.bytes, stage.mb_per_second) for name, stage in complete.items()}
    assert rates == {"chunk reader": (8_000_000, 8.0), "counter": (2_000_000, 0.5), "reducer": (5, None)}
    streams = complete_stages({**ONE, "stream reader": ONE["counter"]}, 8_000_000, reducer)
    assert streams["counter"].bytes == 8_000_000
    assert streams["stream reader"].bytes == 2_000_000
