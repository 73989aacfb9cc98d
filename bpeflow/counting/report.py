"""What ``run.json`` says about a corpus and about counting it, filled in by `counting.count`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from bpeflow._util.text import NormalizerName, Pattern
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.sources import Corpus
from bpeflow.corpus.text_rules import Sample, Source
from bpeflow.counting.fingerprint import FingerprintSummary
from bpeflow.counting.segments import SegmentStatistics
from bpeflow.counting.shards import Spilled
from bpeflow.flow import WorkerReport


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """One source of a mixed corpus."""

    name: str
    weight: int
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
        sources: the sources, if there are several or one has settings of its own.
        pattern: the regular expression, not its name, or several.
        scanner: ``"native"`` or ``"regex"``.
        instructions: the vector instructions of the native scanner.
        unicode: the Unicode version that the pattern was matched with.
        normalizer: the names of the normalizers.
        normalizer_unicode: the Unicode version that they follow.
        unmatched_bytes: bytes of text that the pattern did not match.
    """

    files: int
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
    pretokens: int
    pretoken_bytes: int
    distinct_pretokens: int
    distinct_pretoken_bytes: int


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """The totals of a stage over its workers.

    Attributes:
        seconds: wall time from the stage's start to its end, waiting included.
        cpu_seconds: processor time; None for the reducer, which runs in the main process.
        bytes: text for the readers and the counters, packed counts for the mergers and the reducer.
    """

    workers: int
    items_in: int | None = None
    items_out: int | None = None
    seconds: float
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    bytes: int
    mb_per_second: float | None


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The work of a node of a cluster: wall and processor time are those of its tasks, added up."""

    tasks: int
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """The engine that counted, if not the pipeline of this machine. Figures are those of the last run that took part.

    Attributes:
        kind: name of the engine.
        tasks: tasks that succeeded: counting and summing.
        nodes: by host name.
    """

    kind: str
    tasks: int
    nodes: dict[str, NodeReport]


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


def describe_sources(corpus: Corpus, counted: DocumentStatistics) -> tuple[SourceReport, ...]:
    """Describe each source, if there are several or one with settings of its own."""
    if corpus.sources == [Source()]:
        return ()
    missing = len(corpus.sources) - len(counted.sources)
    statistics = [counted] if len(corpus.sources) == 1 else [*counted.sources, *[DocumentStatistics()] * missing]
    return tuple(
        SourceReport(
            name=source.name,
            weight=source.weight,
            sample=source.sample,
            files=files,
            bytes=documents.bytes,
            documents=documents.documents,
            skipped_documents=documents.skipped_documents,
            bad_records=documents.bad_records,
        )
        for source, files, documents in zip(corpus.sources, corpus.file_counts(), statistics, strict=True)
    )


def describe_stages(
    reports: Iterable[WorkerReport], text_bytes: int, reduced_bytes: int, reducer_seconds: float
) -> dict[str, StageReport]:
    """Describe each stage of the counting pipeline, with its workers' figures added up, and the reducer."""
    stages = {stage: list(workers) for stage, workers in groupby(reports, key=lambda worker: worker.stage)}
    # The chunk reader only plans what others read, and the size of a stream is known only once it has been read: both
    # are given the bytes of all documents.
    of_documents = {"chunk reader", "counter"} if "stream reader" in stages else {"chunk reader"}
    described = {
        stage: _describe_stage(workers, text_bytes if stage in of_documents else None)
        for stage, workers in stages.items()
    }
    reducer = StageReport(
        workers=1,
        seconds=reducer_seconds,
        bytes=reduced_bytes,
        mb_per_second=_mb_per_second(reduced_bytes, reducer_seconds),
    )
    return {**described, "reducer": reducer}


def _describe_stage(workers: list[WorkerReport], size: int | None) -> StageReport:
    seconds = max(worker.wall_seconds for worker in workers)
    done = sum(worker.weight_done for worker in workers) if size is None else size
    return StageReport(
        workers=len(workers),
        items_in=sum(worker.items_in for worker in workers),
        items_out=sum(worker.items_out for worker in workers),
        seconds=seconds,
        cpu_seconds=sum(worker.cpu_seconds for worker in workers),
        peak_memory_bytes=max(worker.peak_memory for worker in workers),
        bytes=done,
        mb_per_second=_mb_per_second(done, seconds),
    )


def _mb_per_second(size: int, seconds: float) -> float | None:
    return size / 1e6 / seconds if seconds > 0 else None
