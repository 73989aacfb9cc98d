"""The counting pipeline: chunk reader → counters → mergers → reducer, on the flow framework."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

from bpeflow.config import CountSettings, make_settings
from bpeflow.cores import available_cores
from bpeflow.corpus import Delimiters, DocumentStatistics, StreamReader, find_boundary
from bpeflow.corpus.given import GIVEN, GivenDocuments, is_documents
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.memory import Memory, default_limit
from bpeflow.counting.merge import Order
from bpeflow.counting.merger import CountMerger, owner
from bpeflow.counting.passes import CountObserver, Passes
from bpeflow.counting.reader import ChunkReader
from bpeflow.counting.reducer import reduce_runs
from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Spilled, new_scratch, removed_at_end
from bpeflow.counting.segments import (
    SEGMENTS_FOLDER,
    SegmentFolder,
    SegmentPlan,
    SegmentStatistics,
    is_begun,
    remove_segments,
)
from bpeflow.counting.sources import Corpus, Entry, find_corpus, longest_first, stream_parts
from bpeflow.counting.table import choose_scanner, native_unicode_version, why_regex
from bpeflow.counting.unchanged import check_unchanged
from bpeflow.errors import ConfigError
from bpeflow.flow import Pipeline, QueueSpec, Sample, Source, Stage, WorkerReport
from bpeflow.out_of_memory import memory_needed
from bpeflow.pretokenize import Pretokenizer, load_pretokenizer, unicode_version

#: Input up to this size is counted in this process, in threads: reading and counting so much takes about as long as
#: starting processes, importing what they need, and sending their counts. By the `regex` module, in one thread.
SMALL_INPUT = {"native": 1_000_000_000, "regex": 4_000_000}

#: The same where there are streams, which are read in parallel by processes only.
SMALL_STREAMS = 4_000_000

#: What to do about a lack of memory.
_LESS_MEMORY = "use fewer counters (num_counter), a smaller chunk_size or memory_limit; or add memory"

log = logging.getLogger(__name__)


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
        counters: how many there were; in the calling process they are threads.
        memory_limit: bytes that the processes together might take for counts.
        spilled: what was written to the scratch folder because of it.
        segments: how it was divided; None for a corpus that was counted at once. With segments `seconds`, `workers` and
            the documents are those of all runs that took part.
    """

    counts: PretokenCounts
    documents: DocumentStatistics
    files: int
    seconds: float
    workers: list[WorkerReport]
    reducer_seconds: float
    reduced_bytes: int
    in_process: bool
    counters: int
    memory_limit: int
    spilled: Spilled
    segments: SegmentStatistics | None = None


class CorpusCounter:
    """A corpus that has been found and settings that have been checked: all that can be refused before any work.

    `run_folder` is where the segments of a large corpus are, and where counts are spilled to, if need be, when neither
    the settings name a folder nor `scratch_in` does. Who counts into it holds its lock.

    Raises `CorpusError` for input that is not there, `PatternError` for a pattern that is none, and `ConfigError` for a
    scratch folder that cannot be written to.
    """

    def __init__(
        self,
        settings: CountSettings,
        run_folder: Path | None = None,
        given: GivenDocuments | None = None,
        scratch_in: Path | None = None,
    ) -> None:
        self.settings = settings
        self._run_folder = run_folder
        self.scratch = new_scratch(settings.scratch_dir or scratch_in or run_folder)
        if (folder := settings.scratch_dir) and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise ConfigError(f"scratch_dir: {folder} is no folder that can be written to")
        self.pretokenizer: Pretokenizer = load_pretokenizer(settings.pattern)
        self.scanner = choose_scanner(settings.scanner, self.pretokenizer)
        if self.scanner == "regex" and settings.scanner == "auto":
            log.info("pre-tokens are found by the regex module, which is slow: %s", why_regex(self.pretokenizer))
        self.delimiters = Delimiters(settings.document_separator, settings.special_tokens)
        self.corpus: Corpus = find_corpus(settings, given)
        self.total_bytes = self.corpus.known_bytes

    @cached_property
    def unicode(self) -> str:
        """The version of Unicode that the pattern goes by."""
        return native_unicode_version() if self.scanner == "native" else unicode_version()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What the counts depend on."""
        return Fingerprint.of(self.settings, self.pretokenizer.regex, self.unicode, self.corpus.entries)

    def count(
        self,
        observer: CountObserver | None = None,
        on_sample: Callable[[Sample], None] | None = None,
        sample_interval: float = 10.0,
    ) -> CorpusCounts:
        """Run the pipeline; `on_sample` gets a sample of the queue monitor every `sample_interval` seconds.

        Where there is a run folder, a corpus larger than `segment_size` is counted in segments, and so is one of which
        there are segments already: those are taken over. They stay until `forget_segments`. Raises `ResumeError` if
        they are of another corpus or of other settings.
        """
        started = perf_counter()
        in_process = self.corpus.only_here or (self.total_bytes <= self._small_input() and on_sample is None)
        counters = self._counters(in_process)
        limit = int(self.settings.memory_limit or default_limit())
        memory = Memory.share(limit, counters, self.settings.num_merger)
        total = None if self.corpus.only_here else self.total_bytes  # an iterable, or standard input
        passes = Passes(total, observer, on_sample, sample_interval)
        segments = self._segments(memory)
        with memory_needed("counting the corpus", _LESS_MEMORY), removed_at_end(self.scratch):
            if segments is None:
                passes.tell()
                runs = passes.run(self._pipeline(self.corpus.entries, counters, in_process, memory), in_process)
                check_unchanged(self.corpus.entries, "run again when it is complete", may_grow=True)
            else:

                def count_entries(entries: list[Entry]) -> list[CountRun]:
                    return passes.run(self._pipeline(entries, counters, in_process, memory, "bytes"), in_process)

                counted = segments.count(passes, count_entries)
                runs = passes.run(self._merging(counted, Memory.share(limit, 1, 1)), in_process)
            reducing = perf_counter()
            counts, documents = reduce_runs(runs, memory)
        ended = perf_counter()
        if documents.skipped_documents:
            log.warning("%d of %d documents were skipped: not UTF-8", documents.skipped_documents, documents.documents)
        statistics = segments.statistics() if segments else None
        return CorpusCounts(
            counts=counts,
            documents=documents,
            files=sum(self.corpus.file_counts()),
            seconds=ended - started + (statistics.taken_over_seconds if statistics else 0),
            workers=segments.reports(passes) if segments else passes.reports,
            reducer_seconds=ended - reducing,
            reduced_bytes=sum(run.size for run in runs),
            in_process=in_process,
            counters=counters,
            memory_limit=limit,
            spilled=passes.spilled,
            segments=statistics,
        )

    def forget_segments(self) -> None:
        """Remove the segments: the counts are elsewhere, and durable."""
        if self._run_folder is not None:
            remove_segments(self._run_folder)

    def _segments(self, memory: Memory) -> SegmentFolder | None:
        folder, size = self._run_folder, int(self.settings.segment_size)
        if folder is None or not (self.total_bytes > size or is_begun(folder)):
            return None
        if self.corpus.only_here:  # and once: no other run could go on with it
            return None
        boundary = partial(
            find_boundary,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            cut_documents=self.settings.invalid_utf8 != "skip",
            longest=memory.longest_text,
        )
        plan = SegmentPlan(self.corpus.entries, size, boundary)
        return SegmentFolder(folder / SEGMENTS_FOLDER, plan, self.fingerprint, memory)

    def _small_input(self) -> int:
        if self.settings.small_input is not None:
            return int(self.settings.small_input)
        return min(SMALL_INPUT[self.scanner], SMALL_STREAMS) if self.corpus.streams else SMALL_INPUT[self.scanner]

    def _counters(self, in_process: bool) -> int:
        counters = self.settings.num_counter or available_cores()
        if not in_process:
            return counters
        chunks = -(-self.total_bytes // int(self.settings.chunk_size))
        if self.corpus.streams or self.corpus.only_here:
            chunks = counters  # nobody knows how many there are going to be
        return max(min(counters, chunks), 1) if self.scanner == "native" else 1

    def _pipeline(
        self, entries: Sequence[Entry], counters: int, in_process: bool, memory: Memory, order: Order = "count"
    ) -> Pipeline:
        """Counts files, or documents at hand; the results are in this order."""
        settings = self.settings
        most = int(settings.queue.max_bytes)
        queue = partial(QueueSpec, max_items=settings.queue.max_items, max_bytes=most)
        chunk_size = memory.chunk_size(int(settings.chunk_size))
        given_up = Event() if self.corpus.only_here else None  # and so in process
        streams = StreamReader(
            sources=self.corpus.sources,
            chunk_size=chunk_size,
            longest=memory.longest_text,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            invalid_utf8=settings.invalid_utf8,
            given_up=given_up,
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
            threads=counters if in_process else 1,
            given_up=given_up,
        )
        stages = [
            Stage(
                "counter",
                counter,
                reads=queue("chunk_queue", max_bytes=min(most, memory.queued_text)),
                workers=1 if in_process else counters,
                weigh=attrgetter("weight"),
            ),
            Stage(
                "merger",
                CountMerger(memory, self.scratch, order=order),
                reads=queue("counter_queue", route=owner),
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
            Source("chunk reader", reader),
            stages,
            results=queue("merged_queue"),
            start_method=settings.start_method,
            preload=("bpeflow.counting.reader", "bpeflow.counting.counter", "bpeflow.counting.merger"),
            temporary=(self.scratch.folder,),
        )

    def _merging(self, segments: Sequence[CountRun], memory: Memory) -> Pipeline:
        """Merges segments, in a process of its own: no more than one, for they are not parted by hash."""
        queue = self.settings.queue
        return Pipeline(
            Source("segment reader", partial(list, segments)),
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


def count(
    paths: str | Path | Sequence[str | Path] | Iterable[str | bytes],
    pattern: str = "gpt2",
    special_tokens: Sequence[str] = (),
    *,
    observer: CountObserver | None = None,
    **options: Any,
) -> PretokenCounts:
    """Count the pre-tokens of files, or of documents that are at hand.

    Args:
        paths: files, folders, globs, ``@lists`` of these, ``-`` for standard input, or URLs that fsspec knows; or any
            iterable of documents that is no list or tuple (``iter(documents)``), each of them a `str` or `bytes`.
        pattern: ``"gpt2"``, ``"cl100k"``, ``"o200k"``, ``"llama3"``, ``"qwen2"`` or a regular expression of the
            `regex` module.
        special_tokens: taken out before pre-tokenization, the longest first; the first one ends documents unless
            `separator` names something else.
        observer: is told of the progress.
        options: the other keys of `bpeflow.config.CountSettings`: `sources`, `input_format`,
            `text_field`, `text_column`, `exclude`, `separator`, `invalid_utf8`,
            `num_counter`, `num_merger`, `chunk_size`, `small_input`, `memory_limit`, `scratch_dir`, `queue`,
            `start_method`.

    Raises:
        ConfigError: a setting that is unknown or out of range.
        CorpusError: a file that is missing or unreadable; `InvalidUtf8Error` for one that is not UTF-8.
        ScratchError: counts for which there was neither memory nor room on the disk.
        WorkerDied: a process of the pipeline was killed.
    """
    values, given = given_apart({"input": paths, "pattern": pattern, "special_tokens": special_tokens, **options})
    return CorpusCounter(make_settings(CountSettings, values), given=given).count(observer).counts


def given_apart(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], GivenDocuments | None]:
    """Settings of which `input` may be an iterable of documents, and that iterable if it is one."""
    if "input" not in values or not is_documents(values["input"]):
        return values, None
    return {**values, "input": GIVEN}, GivenDocuments(values["input"])
