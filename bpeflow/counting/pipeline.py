"""The counting pipelines: `PipelineBuilder` states them, `PipelineRunner` runs several as if they were one.

    chunk reader → [stream reader ×S] → counter ×N → merger ×M → reducer (the calling process)

A corpus in segments takes one pipeline per segment, and one more that sums their shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from threading import Event
from time import monotonic
from typing import Literal

from bpeflow import flow
from bpeflow._util.cpu import available_cores
from bpeflow.config import CountSettings
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.reader import ChunkReader, StreamReader
from bpeflow.corpus.sources import Corpus, CorpusEntry, longest_first, stream_parts
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.kway import Order
from bpeflow.counting.merger import CountMerger, partition_of
from bpeflow.counting.shards import Scratch, Shard, Spilled
from bpeflow.flow import Monitor, MonitorSample, Pipeline, QueueSpec, Stage, StageRate, WorkerReport, stall_watch
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.progress import Observer

#: How often an observer hears of the progress, in seconds.
PROGRESS_INTERVAL = 0.5


class PipelineRunner:
    """Runs pipelines, watched.

    Attributes:
        reports: what each worker of each stage did and took, in all pipelines together.
        spilled: what they wrote to the scratch folder for lack of memory.
        done_bytes: text that has been counted; what earlier runs have counted is added by those who know of it.
    """

    def __init__(
        self,
        total_bytes: int | None,
        observer: Observer | None = None,
        on_sample: Callable[[MonitorSample], None] | None = None,
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

    def report_progress(self, done: int = 0) -> None:
        """Tell the observer how much has been counted, `done` of it by the pipeline that runs."""
        if self._observer is not None:
            self._observer.counting(done + self.done_bytes, self._total_bytes)

    def run(self, pipeline: Pipeline, inline: bool) -> list[Shard]:
        """Run a pipeline and return its results."""
        with ExitStack() as watchers:
            watchers.enter_context(stall_watch(pipeline))
            if self._observer is not None:
                watchers.enter_context(Monitor(pipeline, PROGRESS_INTERVAL, self._on_progress, processes=False))
            if self._on_sample is not None:
                watchers.enter_context(Monitor(pipeline, self._sample_interval, self._on_sample_of_run))
            with closing(pipeline.run(inline=inline)) as results:  # its workers end before their files go
                runs: list[Shard] = list(results)
        self.done_bytes += sum(report.weight_done for report in pipeline.reports if report.stage == "counter")
        self.reports = added_up(self.reports, pipeline.reports)
        self.spilled = sum((run.spilled for run in runs), start=self.spilled)
        return runs

    def _on_progress(self, sample: MonitorSample) -> None:
        if "counter" in sample.stages:
            self.report_progress(sample.stages["counter"].weight_done)

    def _on_sample_of_run(self, sample: MonitorSample) -> None:
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


@dataclass(frozen=True)
class PipelineBuilder:
    """Builds the pipelines that count a corpus.

    Attributes:
        settings: the settings.
        corpus: the sources and their files.
        delimiters: the separator and the special tokens.
        pretokenizer: the pattern.
        scanner: how pre-tokens are found.
        scratch: where stages spill to.
        counters: counters; threads if `in_process`, else processes.
        in_process: whether the stages run in the calling process.
        memory: each stage's share of the memory limit.
    """

    settings: CountSettings
    corpus: Corpus
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    scanner: Literal["native", "regex"]
    scratch: Scratch
    counters: int
    in_process: bool
    memory: MemoryBudget

    def counting(self, entries: Sequence[CorpusEntry], order: Order = "count") -> Pipeline:
        """Return a pipeline that counts a part of the corpus; its results are shards in this order."""
        settings, in_process, memory = self.settings, self.in_process, self.memory
        most = int(settings.queue.max_bytes)
        queue = partial(QueueSpec, max_items=settings.queue.max_items, max_bytes=most)
        chunk_size = memory.chunk_size(int(settings.chunk_size))
        cancelled = Event() if self.corpus.main_process_only else None  # which implies in_process
        streams = StreamReader(
            sources=self.corpus.sources,
            chunk_size=chunk_size,
            longest=memory.longest_text,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            invalid_utf8=settings.invalid_utf8,
            cancelled=cancelled,
        )
        reader = ChunkReader(
            files=entries if in_process else longest_first(entries),
            chunk_size=chunk_size,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            invalid_utf8=settings.invalid_utf8,
            longest=memory.longest_text,
            streams=streams if in_process else None,
        )
        counter = ChunkCounter(
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            scanner=self.scanner,
            invalid_utf8=settings.invalid_utf8,
            partitions=settings.num_merger,
            memory=memory,
            scratch=self.scratch,
            sources=self.corpus.sources,
            threads=self.counters if in_process else 1,
            cancelled=cancelled,
        )
        stages = [
            Stage(
                "counter",
                counter,
                reads=queue("chunk_queue", max_bytes=min(most, memory.queued_text)),
                workers=1 if in_process else self.counters,
                weigh=attrgetter("weight"),
            ),
            Stage(
                "merger",
                CountMerger(memory, self.scratch, order=order),
                reads=queue("counter_queue", route=partition_of),
                workers=settings.num_merger,
                weigh=attrgetter("size"),
            ),
        ]
        if parts := 0 if in_process else stream_parts(entries):
            readers = min(parts, available_cores())
            stages.insert(
                0,
                Stage(
                    "stream reader",
                    streams,
                    reads=queue("stream_queue"),
                    workers=readers,
                    weigh=attrgetter("weight"),
                ),
            )
        return Pipeline(
            flow.Source("chunk reader", reader),
            stages,
            results=queue("merged_queue"),
            start_method=settings.start_method,
            preload=("bpeflow.corpus.reader", "bpeflow.counting.counter", "bpeflow.counting.merger"),
            temporary=(self.scratch.folder,),
        )

    def summing(self, segments: Sequence[Shard], memory: MemoryBudget) -> Pipeline:
        """Return a pipeline that sums the shards of segments: one process, as they are not partitioned by hash."""
        queue = self.settings.queue
        return Pipeline(
            flow.Source("segment reader", partial(list, segments)),
            [
                Stage(
                    "merger",
                    CountMerger(memory, self.scratch),
                    reads=QueueSpec("segment_queue", queue.max_items, int(queue.max_bytes)),
                    weigh=attrgetter("size"),
                )
            ],
            results=QueueSpec("merged_queue", queue.max_items, int(queue.max_bytes)),
            start_method=self.settings.start_method,
            preload=("bpeflow.counting.merger",),
            temporary=(self.scratch.folder,),
        )
