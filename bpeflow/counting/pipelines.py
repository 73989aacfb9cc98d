"""The counting pipelines: `PipelineBuilder` builds them, `PipelineRunner` runs several as if they were one.

    chunk reader → [stream reader ×S] → counter ×N → merger ×M → reducer (the calling process)

A corpus in segments takes one pipeline per segment, and one more that sums their shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING

from bpeflow import flow
from bpeflow._util.machine import available_cores
from bpeflow.config import CountSettings
from bpeflow.corpus.checks import FirstLook
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import longest_first, stream_parts
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.report import Stages, combine_stages
from bpeflow.counting.shards import PARTITIONS, Scratch, Shard, divide_shards
from bpeflow.counting.table import SharedTables
from bpeflow.flow import Executor, Monitor, MonitorSample, Pipeline, QueueSpec, Stage, stall_watch
from bpeflow.progress import Observer

if TYPE_CHECKING:
    from bpeflow.counting.units import Units

#: Seconds between two progress callbacks.
PROGRESS_INTERVAL = 0.5

#: The bounds of each queue: items and bytes in flight. When either is reached, the stage that feeds the queue waits.
#: Smaller queues let fast stages wait for each other's pauses, larger ones take memory.
QUEUE_ITEMS, QUEUE_BYTES = 64, 256_000_000


@dataclass
class PipelineRunner:
    """Runs pipelines one after another, and reports progress as if they were one.

    Attributes:
        build: builds the pipelines.
        total_bytes: bytes of input, by the sizes of files; None if unknown.
        observer: progress callbacks.
        on_sample: callback for samples of the monitor.
        sample_interval: seconds between two samples.
        stages: the work of each stage, added up over all pipelines.
        done_bytes: bytes of input counted so far. A caller that resumes a run adds those counted by earlier runs.
    """

    build: PipelineBuilder
    total_bytes: int | None = None
    observer: Observer = field(default_factory=Observer)
    on_sample: Callable[[MonitorSample], None] | None = None
    sample_interval: float = 10.0
    stages: Stages = field(default_factory=dict)
    done_bytes: int = 0
    _began: float = field(default_factory=monotonic)

    def report_progress(self, done: int = 0) -> None:
        """Report progress to the observer. `done` is the number of bytes that the current pipeline has counted."""
        self.observer.counting(done + self.done_bytes, self.total_bytes)

    def sum(self, shards: Sequence[Shard]) -> list[Shard]:
        """Return the sums of all partitions of these shards."""
        return self.run(self.build.summing(shards))

    def run(self, pipeline: Pipeline) -> list[Shard]:
        """Run a pipeline and return its results."""
        # Not in an `ExitStack`, which Ctrl-C can leave in a reference cycle, with the monitor's thread still running.
        progress = Monitor(pipeline, PROGRESS_INTERVAL, self._on_progress, processes=False)
        samples: AbstractContextManager[object] = nullcontext()
        if self.on_sample is not None:
            samples = Monitor(pipeline, self.sample_interval, self._on_pipeline_sample)
        # The results are closed, so that workers end before their scratch files are removed.
        with stall_watch(pipeline), progress, samples, closing(pipeline.run(self.build.executor)) as results:
            shards: list[Shard] = list(results)
        self.done_bytes += pipeline.reports["counter"].bytes if "counter" in pipeline.names else 0
        self.stages = combine_stages([self.stages, pipeline.reports])
        return shards

    def _on_progress(self, sample: MonitorSample) -> None:
        if "counter" in sample.stages:
            self.report_progress(sample.stages["counter"].weight_done)
        self.observer.working(self._with_earlier(sample))

    def _on_pipeline_sample(self, sample: MonitorSample) -> None:
        if self.on_sample is not None:
            self.on_sample(self._with_earlier(sample))

    def _with_earlier(self, sample: MonitorSample) -> MonitorSample:
        """Return a sample with the totals of earlier pipelines added."""
        stages = dict(sample.stages)
        for name, earlier in self.stages.items():
            if name in stages:
                rate, items = stages[name], earlier.items_in or earlier.items_out or 0
                done = rate.weight_done + earlier.bytes
                stages[name] = replace(rate, items=rate.items + items, weight_done=done)
        return replace(sample, elapsed=monotonic() - self._began, stages=stages)


@dataclass(frozen=True)
class PipelineBuilder:
    """Builds the pipelines that count a corpus.

    Attributes:
        settings: the settings.
        rules: how text becomes pre-tokens.
        scratch: where stages spill.
        limit: the memory limit.
        counters: number of counters.
        mergers: number of mergers.
        executor: whether the stages are processes, or threads of the calling process.
        look: looks at entries that can be read only once, if there may be any.
        units: count cells of their pairs, or fragments, instead of pre-tokens.
    """

    settings: CountSettings
    rules: TextRules
    scratch: Scratch
    limit: int
    counters: int
    mergers: int
    executor: Executor
    look: FirstLook | None
    units: Units | None = None

    @property
    def memory(self) -> MemoryBudget:
        """The shares of the memory limit when a corpus is counted."""
        return MemoryBudget.share(self.limit, self.counters, self.mergers)

    def counting(self, entries: Sequence[InputFile], shared: SharedTables | None = None) -> Pipeline:
        """Return a pipeline that counts these entries of the corpus.

        Its results are the sums of all partitions. Threads may leave them in `shared` instead.
        """
        in_process, memory = self.executor == "threads", self.memory
        shared = shared if in_process else None
        queue = partial(QueueSpec, max_items=QUEUE_ITEMS, max_bytes=QUEUE_BYTES)
        chunk_size = memory.chunk_size(int(self.settings.chunk_size))
        reader = CorpusReader(self.rules, chunk_size, self.look)
        read = partial(reader.read, entries) if in_process else partial(reader.plan, longest_first(entries))
        counter = ChunkCounter(self.rules, self.mergers, memory, self.scratch, shared, self.units)
        stages = [
            Stage(
                "counter",
                counter,
                reads=queue("chunk_queue", max_bytes=min(QUEUE_BYTES, memory.counter)),
                workers=self.counters,
                weigh=attrgetter("weight"),
            ),
            self._merging("counter_queue", CountMerger(memory, self.scratch), self.mergers),
        ]
        if parts := 0 if in_process else stream_parts(entries):
            readers = min(parts, available_cores())
            stages.insert(
                0,
                Stage(
                    "stream reader",
                    reader.read_streams,
                    reads=queue("stream_queue"),
                    workers=readers,
                    weigh=attrgetter("weight"),
                ),
            )
        return Pipeline(
            flow.Source("chunk reader", read),
            stages,
            results=queue("merged_queue"),
            temporary=(self.scratch.folder,),
        )

    def summing(self, shards: Sequence[Shard]) -> Pipeline:
        """Return a pipeline that sums the shards of segments."""
        mergers = min(self.settings.num_merger or available_cores(), PARTITIONS)
        merger = CountMerger(MemoryBudget.share(self.limit, 1, mergers), self.scratch)
        return Pipeline(
            flow.Source("segment reader", partial(divide_shards, shards, mergers)),
            [self._merging("segment_queue", merger, mergers)],
            results=QueueSpec("merged_queue", QUEUE_ITEMS, QUEUE_BYTES),
            temporary=(self.scratch.folder,),
        )

    @staticmethod
    def _merging(queue: str, merger: CountMerger, workers: int) -> Stage:
        reads = QueueSpec(queue, QUEUE_ITEMS, QUEUE_BYTES, route=attrgetter("merger"))
        return Stage("merger", merger, reads=reads, workers=workers, weigh=attrgetter("size"))
