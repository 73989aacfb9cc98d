"""The counting pipeline: chunk reader → counters → mergers → reducer, on the flow framework."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any

from bpeflow._util.cpu import available_cores
from bpeflow._util.memory import explain_memory_error
from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.formats.iterable import DOCUMENTS, DocumentIterable, is_documents
from bpeflow.corpus.reader import check_unchanged
from bpeflow.corpus.sources import Corpus, find_corpus
from bpeflow.corpus.split import find_boundary
from bpeflow.counting.budget import MemoryBudget, default_limit
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.counting.merger import reduce_shards
from bpeflow.counting.pipeline import PipelineBuilder, PipelineRunner
from bpeflow.counting.segments import (
    SegmentFolder,
    SegmentPlan,
    SegmentStatistics,
    has_segments,
    remove_segments,
)
from bpeflow.counting.shards import Spilled, new_scratch, removed_at_end
from bpeflow.errors import ConfigError
from bpeflow.flow import MonitorSample, WorkerReport
from bpeflow.pretokenize.native import choose_scanner, native_unicode_version, why_regex
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer, unicode_version
from bpeflow.progress import Observer

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

    Args:
        settings: the settings.
        segments_folder: where the segments of a large corpus are kept; without it the corpus is counted at once. The
            caller holds the lock of its run folder.
        documents: the corpus, if it is an iterable.
        scratch_in: where to spill counts if the settings name no folder; by default the system's temporary folder.

    Raises:
        CorpusError: input is missing or unreadable.
        PatternError: the pattern is neither a known name nor a valid regular expression.
        ConfigError: the scratch folder cannot be written to.
    """

    def __init__(
        self,
        settings: CountSettings,
        segments_folder: Path | None = None,
        documents: DocumentIterable | None = None,
        scratch_in: Path | None = None,
    ) -> None:
        self.settings = settings
        self._segments_folder = segments_folder
        self.scratch = new_scratch(settings.scratch_dir or scratch_in)
        if (folder := settings.scratch_dir) and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise ConfigError(f"scratch_dir: {folder} is no folder that can be written to")
        self.pretokenizer: Pretokenizer = load_pretokenizer(settings.pattern)
        self.scanner = choose_scanner(settings.scanner, self.pretokenizer)
        if self.scanner == "regex" and settings.scanner == "auto":
            log.info("pre-tokens are found by the regex module, which is slow: %s", why_regex(self.pretokenizer))
        self.delimiters = Delimiters(settings.document_separator, settings.special_tokens)
        self.corpus: Corpus = find_corpus(settings, documents)
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
        observer: Observer | None = None,
        on_sample: Callable[[MonitorSample], None] | None = None,
        sample_interval: float = 10.0,
    ) -> CorpusCounts:
        """Run the pipeline; `on_sample` gets a sample of the queue monitor every `sample_interval` seconds.

        Where there is a run folder, a corpus larger than `segment_size` is counted in segments, and so is one of which
        there are segments already: those are taken over. They stay until `forget_segments`. Raises `ResumeError` if
        they are of another corpus or of other settings.
        """
        started = perf_counter()
        in_process = self.corpus.main_process_only or (self.total_bytes <= self._small_input() and on_sample is None)
        counters = self._counters(in_process)
        limit = int(self.settings.memory_limit or default_limit())
        memory = MemoryBudget.share(limit, counters, self.settings.num_merger)
        total = None if self.corpus.main_process_only else self.total_bytes  # an iterable, or standard input
        runner = PipelineRunner(total, observer, on_sample, sample_interval)
        build = PipelineBuilder(
            settings=self.settings,
            corpus=self.corpus,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            scanner=self.scanner,
            scratch=self.scratch,
            counters=counters,
            in_process=in_process,
            memory=memory,
        )
        segments = self._segments(memory)
        with explain_memory_error("counting the corpus", _LESS_MEMORY), removed_at_end(self.scratch):
            if segments is None:
                runner.report_progress()
                shards = runner.run(build.counting(self.corpus.entries), in_process)
                check_unchanged(self.corpus.entries, "run again when it is complete", may_grow=True)
            else:
                counted = segments.count(
                    runner, lambda entries: runner.run(build.counting(entries, "bytes"), in_process)
                )
                shards = runner.run(build.summing(counted, MemoryBudget.share(limit, 1, 1)), in_process)
            reducing = perf_counter()
            counts, documents = reduce_shards(shards, memory)
        ended = perf_counter()
        if documents.skipped_documents:
            log.warning("%d of %d documents were skipped: not UTF-8", documents.skipped_documents, documents.documents)
        statistics = segments.statistics() if segments else None
        return CorpusCounts(
            counts=counts,
            documents=documents,
            files=sum(self.corpus.file_counts()),
            seconds=ended - started + (statistics.resumed_seconds if statistics else 0),
            workers=segments.reports(runner) if segments else runner.reports,
            reducer_seconds=ended - reducing,
            reduced_bytes=sum(shard.size for shard in shards),
            in_process=in_process,
            counters=counters,
            memory_limit=limit,
            spilled=runner.spilled,
            segments=statistics,
        )

    def forget_segments(self) -> None:
        """Remove the segments: the counts are elsewhere, and durable."""
        if self._segments_folder is not None:
            remove_segments(self._segments_folder)

    def _segments(self, memory: MemoryBudget) -> SegmentFolder | None:
        folder, size = self._segments_folder, int(self.settings.segment_size)
        if folder is None or not (self.total_bytes > size or has_segments(folder)):
            return None
        if self.corpus.main_process_only:  # and once: no other run could go on with it
            return None
        boundary = partial(
            find_boundary,
            delimiters=self.delimiters,
            pretokenizer=self.pretokenizer,
            cut_documents=self.settings.invalid_utf8 != "skip",
            longest=memory.longest_text,
        )
        plan = SegmentPlan(self.corpus.entries, size, boundary)
        return SegmentFolder(folder, plan, self.fingerprint, memory)

    def _small_input(self) -> int:
        if self.settings.small_input is not None:
            return int(self.settings.small_input)
        return min(SMALL_INPUT[self.scanner], SMALL_STREAMS) if self.corpus.streams else SMALL_INPUT[self.scanner]

    def _counters(self, in_process: bool) -> int:
        counters = self.settings.num_counter or available_cores()
        if not in_process:
            return counters
        chunks = -(-self.total_bytes // int(self.settings.chunk_size))
        if self.corpus.streams or self.corpus.main_process_only:
            chunks = counters  # nobody knows how many there are going to be
        return max(min(counters, chunks), 1) if self.scanner == "native" else 1


def count(
    paths: str | Path | Sequence[str | Path] | Iterable[str | bytes],
    pattern: str = "gpt2",
    special_tokens: Sequence[str] = (),
    *,
    observer: Observer | None = None,
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
        WorkerDiedError: a process of the pipeline was killed.
    """
    values, documents = split_off_documents(
        {"input": paths, "pattern": pattern, "special_tokens": special_tokens, **options}
    )
    return CorpusCounter(make_settings(CountSettings, values), documents=documents).count(observer).counts


def split_off_documents(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], DocumentIterable | None]:
    """Settings of which `input` may be an iterable of documents, and that iterable if it is one."""
    if "input" not in values or not is_documents(values["input"]):
        return values, None
    return {**values, "input": DOCUMENTS}, DocumentIterable(values["input"])
