"""What ``run.json`` says about a corpus and about counting it, filled in by `counting.count`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from bpeflow._util.text import NormalizerName, Pattern
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.sources import Corpus
from bpeflow.corpus.text_rules import Sample, Source
from bpeflow.counting.fingerprint import FingerprintSummary
from bpeflow.counting.shards import Spilled
from bpeflow.flow import StageReport


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """One source of a mixed corpus."""

    name: str
    weight: float
    sample: Sample | None
    files: int
    bytes: int
    documents: int
    skipped_documents: int
    bad_records: int = 0


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """The corpus that was counted.

    Attributes:
        input_bytes: the size of the files as they are stored, compressed or in JSON; None if it is unknown.
        sources: the sources, if there are several or one has settings of its own.
        pattern: the regular expression, not its name, or several.
        scanner: ``"native"`` or ``"regex"``.
        instructions: the vector instructions of the native scanner.
        unicode: the Unicode version that the pattern was matched with.
        normalizer: the names of the normalizers.
        normalizer_unicode: the Unicode version that they follow.
        unmatched_bytes: bytes of text that the pattern did not match.
        pretokens: the number of pre-tokens, or, if they were cut (`CutReport`), of the fragments of two or more tokens
            that were counted instead. So are the figures below.
        count_unit: the count of one occurrence in a document of weight 1. It is greater than 1 if weights have
            decimals; `pretokens`, the saved counts and the counts of merges are multiplied by it.
    """

    files: int
    input_bytes: int | None = None
    sources: tuple[SourceReport, ...] = ()
    bytes: int
    documents: int
    skipped_documents: int
    bad_records: int = 0
    pattern: Pattern
    scanner: str
    instructions: str | None
    unicode: str
    normalizer: tuple[NormalizerName, ...] = ()
    normalizer_unicode: str | None = None
    unmatched_bytes: int = 0
    count_unit: int = 1
    pretokens: int
    pretoken_bytes: int
    distinct_pretokens: int
    distinct_pretoken_bytes: int


#: The stages of a pipeline, or of several, by name in order. The `bytes` of the readers and the counters are bytes of
#: text, those of the mergers and the reducer bytes of packed counts. On a cluster, the stages of all tasks are added up
#: as if they ran one after another.
Stages: TypeAlias = Mapping[str, StageReport]


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The work of a node of a cluster: wall and processor time are sums over its tasks."""

    tasks: int
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """The engine that counted, if not the pipeline of this machine. The figures describe the last run that took part.

    Attributes:
        kind: name of the engine.
        tasks: tasks that succeeded: counting and summing.
        nodes: by host name.
    """

    kind: str
    tasks: int
    nodes: dict[str, NodeReport]


@dataclass(frozen=True)
class SegmentStatistics:
    """Statistics about the segments of a corpus.

    Attributes:
        segments: number of segments.
        resumed: number of these that an earlier run had counted.
        resumed_bytes: bytes of text in the resumed segments.
        recounted: number of segments of an earlier run that were damaged and counted again.
        resumed_seconds: wall time of earlier runs that was spent on finished segments.
        bytes: total size of the segments' files.
    """

    segments: int
    resumed: int
    resumed_bytes: int
    recounted: int
    resumed_seconds: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CutReport:
    """How the pre-tokens were cut that superwords are learned from.

    Attributes:
        cells: number of cells of pairs of adjacent first-stage tokens: all pairs with the same hash are one.
        frequent_cells: number of cells that occur at least `lowest_count` times. Pre-tokens were cut at all others.
        lowest_count: a lower bound on the counts of merges. If learning needs lower counts, counting is repeated.
        too_high: the lowest counts that were tried before and left too few merges.
    """

    cells: int
    frequent_cells: int
    lowest_count: int
    too_high: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Thinned:
    """The effect of thinning (`counting.canonical`), which comes before learning.

    Attributes:
        pretokens: distinct pre-tokens that were counted.
        positions: their bytes.
        kept_pretokens: distinct pre-tokens that merges were learned from.
        kept_positions: their bytes.
    """

    pretokens: int
    positions: int
    kept_pretokens: int
    kept_positions: int


@dataclass(frozen=True, kw_only=True)
class CountingReport:
    """How the corpus was counted; summed over all runs that took part if it was resumed.

    Attributes:
        memory_limit: limit in bytes for the counts in all processes together.
        spilled: amount of data written to the scratch folder because of the limit.
        segments: None for a corpus that was counted in one go.
        in_process: whether the input was small enough to be counted in the calling process.
        threads: counting threads of the calling process; 1 if there were worker processes.
        stages: by name: ``chunk reader``, ``stream reader`` (for streams only), ``counter``, ``merger``, ``reducer``.
        fingerprint: everything that the counts depend on, to compare with when resuming.
        engine: the engine, if not the local one.
        cut: how pre-tokens were cut; None if they were counted whole.
    """

    seconds: float
    memory_limit: int
    spilled: Spilled
    segments: SegmentStatistics | None
    in_process: bool
    threads: int
    stages: dict[str, StageReport]
    fingerprint: FingerprintSummary
    engine: EngineReport | None = None
    cut: CutReport | None = None


def describe_sources(corpus: Corpus, counted: DocumentStatistics, unit: int) -> tuple[SourceReport, ...]:
    """Describe each source, if there are several or one with settings of its own. Weight 1 is `unit` in the counts."""
    if corpus.sources == [Source()]:
        return ()
    missing = len(corpus.sources) - len(counted.sources)
    statistics = [counted] if len(corpus.sources) == 1 else [*counted.sources, *[DocumentStatistics()] * missing]
    return tuple(
        SourceReport(
            name=source.name,
            weight=source.weight / unit if source.weight % unit else source.weight // unit,
            sample=source.sample,
            files=files,
            bytes=documents.bytes,
            documents=documents.documents,
            skipped_documents=documents.skipped_documents,
            bad_records=documents.bad_records,
        )
        for source, files, documents in zip(corpus.sources, corpus.file_counts(), statistics, strict=True)
    )


def combine_stages(several: Iterable[Stages]) -> Stages:
    """Add up the stages of several pipelines that ran one after another, in order of first appearance."""
    groups: dict[str, list[StageReport]] = {}
    for stages in several:
        for name, stage in stages.items():
            groups.setdefault(name, []).append(stage)

    def combined(group: list[StageReport]) -> StageReport:
        return StageReport(
            workers=max(stage.workers for stage in group),
            items_in=sum(stage.items_in or 0 for stage in group),
            items_out=sum(stage.items_out or 0 for stage in group),
            seconds=sum(stage.seconds for stage in group),
            cpu_seconds=sum(stage.cpu_seconds or 0 for stage in group),
            peak_memory_bytes=max(stage.peak_memory_bytes or 0 for stage in group),
            bytes=sum(stage.bytes for stage in group),
        )

    return {name: combined(group) for name, group in groups.items()}


def complete_stages(stages: Stages, text_bytes: int, reducer: StageReport) -> dict[str, StageReport]:
    """Return the stages for a report: with the reducer, rates, and for stages that read text the bytes of text."""
    # The chunk reader only plans what others read, and the size of a stream is known only once it has been read: both
    # are given the bytes of all documents.
    of_documents = {"chunk reader", "counter"} if "stream reader" in stages else {"chunk reader"}
    complete = {}
    for name, stage in {**stages, "reducer": reducer}.items():
        size = text_bytes if name in of_documents else stage.bytes
        rate = size / 1e6 / stage.seconds if stage.seconds > 0 else None
        complete[name] = replace(stage, bytes=size, mb_per_second=rate)
    return complete
