"""The counting pipeline: chunk reader → counters → mergers → reducer, on the flow framework."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus import CorpusFile, Delimiters, DocumentStatistics, find_files
from bpeflow.counting import WORKER_MODULES
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merger import merge_runs, owner
from bpeflow.counting.reader import ChunkReader
from bpeflow.counting.run import CountRun
from bpeflow.counting.table import choose_scanner, new_merge_table, why_regex
from bpeflow.flow import Monitor, Pipeline, QueueSpec, Sample, Source, Stage, WorkerReport
from bpeflow.pretokenize import Pretokenizer, load_pretokenizer

#: How often an observer hears of the progress, in seconds.
PROGRESS_INTERVAL = 0.5


log = logging.getLogger(__name__)


class CountObserver(Protocol):
    """Is told how far counting has come."""

    def counting(self, counted_bytes: int, total_bytes: int) -> None: ...


@dataclass(frozen=True)
class CorpusCounts:
    """The counts of a corpus and what is known of it.

    Attributes:
        counts: the pre-tokens.
        documents: how many documents and bytes were counted, how many documents skipped.
        files: how many files they were in.
        seconds: wall time.
        workers: what each worker of the pipeline reports of itself; one a stage where no processes were needed.
        reducer_seconds: wall time of putting the partitions together, in the calling process.
        reduced_bytes: size of the packed counts that it put together.
        in_process: whether the input was small enough to be counted in the calling process.
    """

    counts: PretokenCounts
    documents: DocumentStatistics
    files: int
    seconds: float
    workers: list[WorkerReport]
    reducer_seconds: float
    reduced_bytes: int
    in_process: bool


class CorpusCounter:
    """A corpus that has been found and settings that have been checked: all that can be refused before any work.

    Raises `CorpusError` for input that is not there and `PatternError` for a pattern that is none.
    """

    def __init__(self, settings: CountSettings) -> None:
        self.settings = settings
        self.pretokenizer: Pretokenizer = load_pretokenizer(settings.pattern)
        self.scanner = choose_scanner(settings.scanner, self.pretokenizer)
        if self.scanner == "regex" and settings.scanner == "auto":
            log.info("pre-tokens are found by the regex module, which is slow: %s", why_regex(self.pretokenizer))
        self.delimiters = Delimiters(settings.document_separator, settings.special_tokens)
        self.files: list[CorpusFile] = find_files(settings.input, settings.exclude)
        self.total_bytes = sum(file.size for file in self.files)

    def count(
        self,
        observer: CountObserver | None = None,
        on_sample: Callable[[Sample], None] | None = None,
        sample_interval: float = 10.0,
    ) -> CorpusCounts:
        """Run the pipeline; `on_sample` gets a sample of the queue monitor every `sample_interval` seconds."""
        started = perf_counter()
        pipeline = self._pipeline()
        in_process = self.total_bytes <= self.settings.small_input and on_sample is None
        with ExitStack() as watchers:
            if observer is not None:
                observer.counting(0, self.total_bytes)
                tell = partial(_tell_progress, observer, self.total_bytes)
                watchers.enter_context(Monitor(pipeline, PROGRESS_INTERVAL, tell, processes=False))
            if on_sample is not None:
                watchers.enter_context(Monitor(pipeline, sample_interval, on_sample))
            runs = list(pipeline.run(inline=in_process))
        reducing = perf_counter()
        counts, documents = reduce_runs(runs)
        ended = perf_counter()
        if documents.skipped_documents:
            log.warning("%d of %d documents were skipped: not UTF-8", documents.skipped_documents, documents.documents)
        return CorpusCounts(
            counts=counts,
            documents=documents,
            files=len(self.files),
            seconds=ended - started,
            workers=pipeline.reports,
            reducer_seconds=ended - reducing,
            reduced_bytes=sum(run.size for run in runs),
            in_process=in_process,
        )

    def _pipeline(self) -> Pipeline:
        settings = self.settings
        queue = partial(QueueSpec, max_items=settings.queue.max_items, max_bytes=int(settings.queue.max_bytes))
        chunk_size = int(settings.chunk_size)
        reader = ChunkReader(self.files, chunk_size, self.delimiters, self.pretokenizer, settings.invalid_utf8)
        counter = ChunkCounter(
            self.delimiters, self.pretokenizer, self.scanner, settings.invalid_utf8, settings.num_merger
        )
        return Pipeline(
            Source("chunk reader", reader),
            [
                Stage(
                    "counter",
                    counter,
                    reads=queue("chunk_queue"),
                    workers=settings.num_counter or available_cores(),
                    weigh=attrgetter("length"),
                ),
                Stage(
                    "merger",
                    merge_runs,
                    reads=queue("counter_queue", route=owner),
                    workers=settings.num_merger,
                    weigh=attrgetter("size"),
                ),
            ],
            results=queue("merged_queue"),
            start_method=settings.start_method,
            preload=WORKER_MODULES,
        )


def count(
    paths: str | Path | Sequence[str | Path],
    pattern: str = "gpt2",
    special_tokens: Sequence[str] = (),
    *,
    observer: CountObserver | None = None,
    **options: Any,
) -> PretokenCounts:
    """Count the pre-tokens of files.

    Args:
        paths: files, folders and globs.
        pattern: ``"gpt2"``, ``"cl100k"``, ``"o200k"``, ``"llama3"``, ``"qwen2"`` or a regular expression of the
            `regex` module.
        special_tokens: taken out before pre-tokenization, the longest first; the first one ends documents unless
            `separator` names something else.
        observer: is told of the progress.
        options: the other keys of `bpeflow.config.CountSettings`: `exclude`, `separator`, `invalid_utf8`,
            `num_counter`, `num_merger`, `chunk_size`, `small_input`, `queue`, `start_method`.

    Raises:
        ConfigError: a setting that is unknown or out of range.
        CorpusError: a file that is missing or unreadable; `InvalidUtf8Error` for one that is not UTF-8.
        WorkerDied: a process of the pipeline was killed.
    """
    values = {"input": paths, "pattern": pattern, "special_tokens": special_tokens, **options}
    return CorpusCounter(make_settings(CountSettings, values)).count(observer).counts


def reduce_runs(runs: Sequence[CountRun]) -> tuple[PretokenCounts, DocumentStatistics]:
    """Put the partitions, which have no pre-token in common, together into one table in canonical order."""
    documents = sum((run.statistics for run in runs), start=DocumentStatistics())
    if len(runs) == 1:
        return runs[0].to_counts(), documents
    table = new_merge_table()
    for run in runs:
        table.add(run)
    return table.run().to_counts(), documents


def available_cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tell_progress(observer: CountObserver, total_bytes: int, sample: Sample) -> None:
    observer.counting(sample.stages["counter"].weight_done, total_bytes)
