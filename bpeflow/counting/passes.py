"""`Passes`: pipelines that run one after another, and look like one to those who watch.

A corpus in segments takes a pipeline for each of them, and one more to merge what they have counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import replace
from time import monotonic
from typing import Protocol

from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Spilled
from bpeflow.flow import Monitor, Pipeline, Sample, StageRate, WorkerReport, stall_watch

#: How often an observer hears of the progress, in seconds.
PROGRESS_INTERVAL = 0.5


class CountObserver(Protocol):
    """Is told how far counting has come."""

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None: ...


class Passes:
    """Runs pipelines, watched.

    Attributes:
        reports: what each worker of each stage did and took, in all pipelines together.
        spilled: what they wrote to the scratch folder for lack of memory.
        done_bytes: text that has been counted; what earlier runs have counted is added by those who know of it.
    """

    def __init__(
        self,
        total_bytes: int | None,
        observer: CountObserver | None = None,
        on_sample: Callable[[Sample], None] | None = None,
        sample_interval: float = 10.0,
    ) -> None:
        """`total_bytes`: by the sizes of files; None where nobody knows those of all."""
        self.reports: list[WorkerReport] = []
        self.spilled = Spilled()
        self.done_bytes = 0
        self._total_bytes = total_bytes
        self._observer = observer
        self._on_sample = on_sample
        self._sample_interval = sample_interval
        self._began = monotonic()

    def tell(self, done: int = 0) -> None:
        """Tell the observer how much has been counted, `done` of it by the pipeline that runs."""
        if self._observer is not None:
            self._observer.counting(done + self.done_bytes, self._total_bytes)

    def run(self, pipeline: Pipeline, inline: bool) -> list[CountRun]:
        """Run a pipeline and return its results."""
        with ExitStack() as watchers:
            watchers.enter_context(stall_watch(pipeline))
            if self._observer is not None:
                watchers.enter_context(Monitor(pipeline, PROGRESS_INTERVAL, self._hear_progress, processes=False))
            if self._on_sample is not None:
                watchers.enter_context(Monitor(pipeline, self._sample_interval, self._hear_sample))
            with closing(pipeline.run(inline=inline)) as results:  # its workers end before their files go
                runs: list[CountRun] = list(results)
        self.done_bytes += sum(report.weight_done for report in pipeline.reports if report.stage == "counter")
        self.reports = added_up(self.reports, pipeline.reports)
        self.spilled = sum((run.spilled for run in runs), start=self.spilled)
        return runs

    def _hear_progress(self, sample: Sample) -> None:
        if "counter" in sample.stages:
            self.tell(sample.stages["counter"].weight_done)

    def _hear_sample(self, sample: Sample) -> None:
        """Pass a sample on, with the totals of the pipelines before this one."""
        items: defaultdict[str, int] = defaultdict(int)
        weight: defaultdict[str, int] = defaultdict(int)
        for report in self.reports:
            items[report.stage] += report.items_in or report.items_out
            weight[report.stage] += report.weight_done

        def with_earlier(stage: str, rate: StageRate) -> StageRate:
            return replace(rate, items=rate.items + items[stage], weight_done=rate.weight_done + weight[stage])

        if self._on_sample is not None:
            stages = {stage: with_earlier(stage, rate) for stage, rate in sample.stages.items()}
            self._on_sample(replace(sample, elapsed=monotonic() - self._began, stages=stages))


def added_up(first: Iterable[WorkerReport], second: Iterable[WorkerReport]) -> list[WorkerReport]:
    """Add up the reports of each worker; in the order in which stages come first."""
    workers: dict[tuple[str, int], WorkerReport] = {}
    for report in (*first, *second):
        place = report.stage, report.worker
        workers[place] = _sum(workers[place], report) if place in workers else report
    stages = list(dict.fromkeys(stage for stage, _ in workers))
    return sorted(workers.values(), key=lambda report: (stages.index(report.stage), report.worker))


def _sum(first: WorkerReport, second: WorkerReport) -> WorkerReport:
    return replace(
        first,
        items_in=first.items_in + second.items_in,
        items_out=first.items_out + second.items_out,
        wall_seconds=first.wall_seconds + second.wall_seconds,
        cpu_seconds=first.cpu_seconds + second.cpu_seconds,
        weight_done=first.weight_done + second.weight_done,
        peak_memory=max(first.peak_memory, second.peak_memory),
    )
