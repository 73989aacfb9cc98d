"""Counting a corpus: `count`, the public function, and `CorpusCounter`, which training uses."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bpeflow._util.delimiters import END_OF_DOCUMENT
from bpeflow._util.machine import available_cores, default_memory_limit
from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.checks import FirstLook, report_unmatched, warn_of_empty_sources, why_nothing
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.sources import Corpus, check_unchanged, find_corpus, split_off_documents
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.fingerprint import SUBFOLDER, Fingerprint, has_segments, remove_segments
from bpeflow.counting.merger import CountMerger, reduce_shards
from bpeflow.counting.pipelines import PipelineBuilder, PipelineRunner
from bpeflow.counting.report import CorpusReport, CountingReport, complete_stages, describe_sources
from bpeflow.counting.shards import PARTITIONS, RECORD, Shard, Spilled, new_scratch, removed_at_end
from bpeflow.counting.table import SharedTables
from bpeflow.errors import ConfigError, CorpusError, explain_memory_error
from bpeflow.flow import Executor, MonitorSample, StageReport
from bpeflow.keywords import CountKeywords, takes_settings
from bpeflow.pretokenize.native import chosen_instructions, native_unicode_version, why_regex
from bpeflow.pretokenize.normalizer import UNICODE_VERSION
from bpeflow.pretokenize.regex import simplest_pattern, unicode_version
from bpeflow.progress import Observer, observer_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bpeflow.counting.ray_tasks import ClusterCounting
    from bpeflow.counting.segments import SegmentFolder
    from bpeflow.counting.units import Units

#: The most bytes of input that are counted in threads although they hold the interpreter's lock: to read a stream, to
#: normalize text, or to split it with the `regex` module. Counting that much takes about as long as worker processes
#: take to start. With a lower limit small inputs are slower, with a higher one large inputs.
SMALL_INPUT = 4_000_000

#: The most mergers in threads by default. As many threads add up the tables of all counters.
MOST_MERGERS = 8

#: The remedy if memory runs out.
_MEMORY_REMEDY = "use fewer counters (num_counter), a smaller chunk_size or memory_limit; or add memory"

#: The remedy for end-of-text strings that are no special tokens.
_END_OF_TEXT_REMEDY = "learned as ordinary text; to make them special tokens, give special_tokens={tokens}"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CorpusCounts:
    """The counts of a corpus, with statistics.

    For a corpus counted in segments, `documents` and `counting` cover all runs that took part.

    Attributes:
        counts: the pre-token counts.
        documents: numbers of documents, of bytes, and of documents skipped.
        corpus: the corpus, as the report of a run has it.
        counting: how it was counted, as the report of a run has it.
    """

    counts: PretokenCounts
    documents: DocumentStatistics
    corpus: CorpusReport
    counting: CountingReport


class CorpusCounter:
    """Counts a corpus. The constructor finds the corpus and checks the settings, so that mistakes fail before any work.

    Args:
        settings: the settings.
        segments_folder: folder for the segments of a large corpus; without it the corpus is counted in one go. The
            caller holds the lock of the run folder that it is in.
        documents: the corpus, if it is an iterable.
        scratch_in: where to spill if the settings name no folder; by default the system's temporary folder.
        learns: whether a tokenizer will be learned from the counts, which special tokens that are missing would spoil.
        seen: whether the corpus was counted before, so that the mistakes in it have been reported.

    Raises:
        CorpusError: input is missing or unreadable.
        PatternError: the pattern is neither a known name nor a valid regular expression.
        ConfigError: the scratch folder is missing or not writable.
    """

    def __init__(
        self,
        settings: CountSettings,
        segments_folder: Path | None = None,
        documents: Iterable[Any] | None = None,
        scratch_in: Path | None = None,
        learns: bool = True,
        seen: bool = False,
    ) -> None:
        self.settings = settings
        self._seen = seen
        self._learns = learns
        self._segments_folder = segments_folder
        self.scratch = new_scratch(settings.scratch_dir or scratch_in)
        if (folder := settings.scratch_dir) and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise ConfigError(f"scratch_dir: {folder} is not a writable folder")
        self.corpus: Corpus = find_corpus(settings, documents)
        self.corpus.check_sizes(chunk_size=settings.chunk_size, segment_size=settings.segment_size)
        self.rules = TextRules.of(settings, self.corpus.sources)
        if reason := why_regex(self.rules.pretokenizer):
            log.info("pre-tokenizing with the regex module, which is slow: %s", reason)
        self._units: Units | None = None

    def with_units(self, units: Units) -> CorpusCounter:
        """Return a counter of the pairs or fragments of this corpus. Its segments have a folder of their own."""
        other = copy.copy(self)
        other._units = units
        other._seen = self._seen or units.frequent is not None  # pairs are counted before
        if self._segments_folder is not None:
            other._segments_folder = self._segments_folder / units.digest[:SUBFOLDER]
        other.__dict__.pop("fingerprint", None)  # a cached property
        return other

    @cached_property
    def unicode(self) -> str:
        """The Unicode version that the pattern follows."""
        return native_unicode_version() if self.rules.scanner == "native" else unicode_version()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Everything that the counts depend on."""
        units = self._units.digest if self._units is not None else None
        regex = self.rules.pretokenizer.regex
        return Fingerprint.of(self.settings, regex, self.unicode, self.corpus.entries, units)

    def count(
        self,
        observer: Observer | None = None,
        on_sample: Callable[[MonitorSample], None] | None = None,
        sample_interval: float = 10.0,
        cluster: ClusterCounting | None = None,
        *,
        may_be_empty: bool = False,
    ) -> CorpusCounts:
        """Count the corpus.

        If there is a folder for segments, a corpus larger than `segment_size` is counted in segments, and so is any
        corpus of which finished segments exist. Those are not counted again. Segments are kept until `forget_segments`.

        Args:
            observer: progress callbacks.
            on_sample: callback for samples of the queue monitor.
            sample_interval: seconds between two samples.
            cluster: counts the segments, and sums them. There must be a folder for them, which all nodes share.
            may_be_empty: whether a corpus without pre-tokens is no error.

        Raises:
            ResumeError: the segments are of another corpus or of other settings.
            InvalidUtf8Error: a file is not UTF-8, with `invalid_utf8: error`.
            CorpusError: a file is unreadable, in another format than it is read as, or changed while it was counted;
                the corpus has no pre-tokens; or the pattern does not match all of its text, with `unmatched: error`.
            CountOverflowError: a count does not fit 64 bits.
            ScratchError: there was neither memory nor disk space for the counts.
            WorkerDiedError: a worker process was killed.
        """
        started = perf_counter()
        if self._units is not None:
            _ = self._units.handle  # before threads that share it
        look = None if self._seen else FirstLook(self.rules, _END_OF_TEXT_REMEDY if self._learns else None)
        build = self._builder("threads" if cluster else self._executor(), look)
        runner = PipelineRunner(build, self.corpus.total_bytes, observer or Observer(), on_sample, sample_interval)
        shared = SharedTables(build.mergers)
        segments = self._segments(cluster)
        with explain_memory_error("counting the corpus", _MEMORY_REMEDY), removed_at_end(self.scratch):
            if look is not None:
                look.look_at(self.corpus.entries)
            sums = self._sums(runner, shared, segments, cluster)
            reducing = perf_counter()
            counts, documents = reduce_shards(sums, CountMerger(build.memory, self.scratch), shared)
        ended = perf_counter()
        if look is not None:
            self._report_mistakes(look, documents)
        first_pass = self._units is None or self._units.frequent is None  # with this pattern
        if look is not None or (self._learns and first_pass):
            report_unmatched(documents, self.settings)
        if not (len(counts) or may_be_empty):
            self.forget_segments()
            raise CorpusError(why_nothing(self.corpus, documents, self.rules.pretokenizer))
        statistics = segments.statistics() if segments else None
        stages = segments.stages(runner) if segments else runner.stages
        reduced_bytes = len(counts.data) + len(counts) * RECORD.size
        reducer = StageReport(workers=1, seconds=ended - reducing, bytes=reduced_bytes)
        in_process = build.executor == "threads" and cluster is None
        return CorpusCounts(
            counts=counts.with_pattern(
                simplest_pattern(self.settings.pattern), self.settings.unmatched, self.settings.normalizer
            ),
            documents=documents,
            corpus=self._describe_corpus(documents, counts),
            counting=CountingReport(
                seconds=ended - started + (statistics.resumed_seconds if statistics else 0),
                memory_limit=build.limit,
                spilled=sum((shard.spilled for shard in sums), start=Spilled()),
                segments=statistics,
                in_process=in_process,
                threads=build.counters if in_process else 1,
                stages=complete_stages(stages, documents.bytes, reducer),
                fingerprint=self.fingerprint.summary(),
                engine=cluster.report() if cluster else None,
            ),
        )

    def _sums(
        self,
        runner: PipelineRunner,
        shared: SharedTables,
        segments: SegmentFolder | None,
        cluster: ClusterCounting | None,
    ) -> list[Shard]:
        """Count the corpus. Returns the sums of all partitions, without the tables that counters left in `shared`."""
        if segments is None:  # one segment, which is not durable
            runner.report_progress()
            sums = runner.run(runner.build.counting(self.corpus.entries, shared))
            check_unchanged(self.corpus.entries, "run again when it is complete", may_grow=True)
            return sums
        with segments.kept_on_failure():
            shards = segments.count(runner, cluster.count if cluster else None)
            if len(shards) == 1:
                return shards
            return cluster.sum(shards, segments.path, runner) if cluster else runner.sum(shards)

    def _report_mistakes(self, look: FirstLook, documents: DocumentStatistics) -> None:
        """Log what was left out of the counts or is in them by mistake."""
        documents.log_left_out(log)
        warn_of_empty_sources(self.corpus.sources, documents)
        if (look.undivided or self.settings.separator) and documents.documents <= sum(self.corpus.file_counts()):
            log.warning("%r divided no file: each is one document", self.rules.delimiters.separator)

    def _describe_corpus(self, documents: DocumentStatistics, counts: PretokenCounts) -> CorpusReport:
        _, unit = self.settings.whole_weights
        return CorpusReport(
            files=sum(self.corpus.file_counts()),
            input_bytes=self.corpus.total_bytes,
            sources=describe_sources(self.corpus, documents, unit),
            bytes=documents.bytes,
            documents=documents.documents,
            skipped_documents=documents.skipped_documents,
            bad_records=documents.bad_records,
            pattern=self.rules.pretokenizer.regex,
            scanner=self.rules.scanner,
            instructions=chosen_instructions() if self.rules.scanner == "native" else None,
            unicode=self.unicode,
            normalizer=self.settings.normalizer,
            normalizer_unicode=UNICODE_VERSION if self.settings.normalizer else None,
            unmatched_bytes=documents.unmatched_bytes,
            count_unit=unit,
            pretokens=counts.total,
            pretoken_bytes=counts.total_bytes,
            distinct_pretokens=len(counts),
            distinct_pretoken_bytes=len(counts.data),
        )

    def forget_segments(self) -> None:
        """Remove the segments. Call this when the counts are durable elsewhere."""
        if self._segments_folder is not None:
            remove_segments(self._segments_folder)

    def check_distributable(self) -> None:
        """Raise `ConfigError` if other machines cannot count the corpus."""
        if self._segments_folder is None:
            raise ConfigError("out_dir is missing: engines other than local need a folder that all nodes share")
        self.corpus.check_distributable()

    def _segments(self, cluster: ClusterCounting | None) -> SegmentFolder | None:
        """Return the folder for segments; None if the corpus is to be counted in one go."""
        folder, size = self._segments_folder, int(self.settings.segment_size)
        if folder is None or self.corpus.main_process_only:  # can be read only once, so no other run could resume it
            return None
        if cluster is not None:
            size = cluster.segment_size(self.corpus.known_bytes, size)
        elif self.corpus.known_bytes <= size and not has_segments(folder):
            return None
        from bpeflow.corpus.plan import SegmentPlan  # for large corpora only
        from bpeflow.counting.segments import SegmentFolder

        return SegmentFolder(folder, SegmentPlan(self.corpus.entries, size, self.rules), self.fingerprint)

    def _builder(self, executor: Executor, look: FirstLook | None) -> PipelineBuilder:
        counters = self._counters() if executor == "threads" else self.settings.num_counter or available_cores()
        mergers = self.settings.num_merger or (min(counters, MOST_MERGERS) if executor == "threads" else 1)
        return PipelineBuilder(
            settings=self.settings,
            rules=self.rules,
            scratch=self.scratch,
            limit=int(self.settings.memory_limit or default_memory_limit()),
            counters=counters,
            mergers=min(mergers, PARTITIONS),
            executor=executor,
            look=look,
            units=self._units,
        )

    def _executor(self) -> Executor:
        if self.corpus.main_process_only:
            return "threads"
        if self.settings.executor != "auto":
            return self.settings.executor
        parallel = self.rules.scanner == "native" and not self.settings.normalizer and not self.corpus.streams
        return "threads" if parallel or self.corpus.known_bytes <= SMALL_INPUT else "processes"

    def _counters(self) -> int:
        """Return the number of counters in threads: at most one per chunk."""
        counters = self.settings.num_counter or available_cores()
        chunks = -(-self.corpus.known_bytes // int(self.settings.chunk_size))
        if self.corpus.streams or self.corpus.main_process_only:
            chunks = counters  # the number of chunks is unknown
        return max(min(counters, chunks), 1) if self.rules.scanner == "native" else 1


@takes_settings
def count(
    paths: str | Path | Sequence[str | Path] | Iterable[str | bytes | Mapping[str, Any]],
    pattern: str | Sequence[str] = "gpt2",
    special_tokens: str | Sequence[str] = END_OF_DOCUMENT,
    *,
    progress: bool = False,
    observer: Observer | None = None,
    **options: Unpack[CountKeywords],
) -> PretokenCounts:
    """Count the pre-tokens of a corpus.

    The result depends only on the text, the pattern and the special tokens: not on the number of processes, on chunk
    sizes or on the memory limit. A large corpus is counted in several processes. If the counts exceed the memory limit,
    they are spilled to a temporary folder.

    >>> import bpeflow
    >>> documents = ["low lower", "low low"]
    >>> bpeflow.count(iter(documents)).most_common()
    [(b'low', 2), (b' low', 1), (b' lower', 1)]
    >>> bpeflow.count(iter(documents), pattern=".").most_common(3)
    [(b'l', 4), (b'o', 4), (b'w', 4)]

    Args:
        paths: the corpus. Files, folders, globs, ``@lists`` of these, ``-`` for standard input, or URLs that fsspec
            supports. Or an iterable of documents: each a `str`, `bytes`, or a mapping with the text in `text_field`,
            such as a HuggingFace dataset or its column. A list holds paths; if it holds texts, pass `iter(texts)`.
        pattern: ``"gpt2"``, ``"cl100k"``, ``"o200k"``, ``"llama3"``, ``"qwen2"``, a regular expression of the `regex`
            module, or a list. Each pattern of a list splits the pieces of the previous one.
        special_tokens: one or several strings that are removed from the text before pre-tokenization, the longest
            first. One separates documents, as in `Tokenizer.eot_token`, unless `separator` is given. Pass ``()``
            for none.
        progress: show progress on standard error, or in the notebook.
        observer: progress callbacks, instead.
        options: the other settings of `bpeflow.config.CountSettings`: `sources`, `input_format`, `text_field`,
            `exclude`, `separator`, `invalid_utf8`, `bad_records`, `unmatched`, `normalizer`,
            `num_counter`, `num_merger`, `chunk_size`, `executor`, `memory_limit`, `scratch_dir`.

    Returns:
        The distinct pre-tokens and their counts.

    Raises:
        ConfigError: a setting is unknown or out of range.
        PatternError: the pattern is neither a known name nor a valid regular expression.
        CorpusError: input is missing, unreadable, not UTF-8 (`InvalidUtf8Error`), of another format than expected, or
            not matched by the pattern (with `unmatched: error`); or it has nothing to count.
        CountOverflowError: a count does not fit 64 bits.
        ScratchError: there was neither memory nor disk space for the counts.
        WorkerDiedError: a worker process was killed.
    """
    values, documents = split_off_documents(
        {"input": paths, "pattern": pattern, "special_tokens": special_tokens, **options}
    )
    with observer_for(progress, observer) as watching:
        return CorpusCounter(make_settings(CountSettings, values), documents=documents).count(watching).counts
