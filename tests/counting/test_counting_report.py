"""Stages of several pipelines add up; rates are those of the text."""

from __future__ import annotations

from bpeflow.counting.report import combine_stages, complete_stages
from bpeflow.flow import StageReport


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


ONE = {"chunk reader": stage(1, 1, 1.0, 0.5, 10**6, 10), "counter": stage(2, 2, 4.0, 3.0, 2 * 10**6, 20)}


def test_pipelines_run_one_after_another() -> None:
    more = {"counter": stage(1, 1, 1.0, 0.5, 10**6, 10), "merger": stage(1, 1, 1.0, 0.5, 10**6, 10)}
    both = combine_stages([ONE, more])
    assert list(both) == ["chunk reader", "counter", "merger"]
    assert both["counter"] == stage(2, 3, 5.0, 3.5, 3 * 10**6, 20)
    assert both["merger"] == more["merger"]


def test_rates_are_those_of_the_text_for_stages_that_read_it() -> None:
    reducer = StageReport(workers=1, seconds=0.0, bytes=5)
    complete = complete_stages(ONE, 8_000_000, reducer)
    rates = {name: (stage.bytes, stage.mb_per_second) for name, stage in complete.items()}
    assert rates == {"chunk reader": (8_000_000, 8.0), "counter": (2_000_000, 0.5), "reducer": (5, None)}
    streams = complete_stages({**ONE, "stream reader": ONE["counter"]}, 8_000_000, reducer)
    assert streams["counter"].bytes == 8_000_000
    assert streams["stream reader"].bytes == 2_000_000
