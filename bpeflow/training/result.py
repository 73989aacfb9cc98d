"""The result of a training run: `TrainResult`, and the parts of its report, from what counting and learning return."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from bpeflow import __version__
from bpeflow._util.machine import available_cores
from bpeflow.config import Settings
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.sources import Source
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError
from bpeflow.flow import WorkerReport
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import chosen_instructions
from bpeflow.pretokenize.normalizer import UNICODE_VERSION
from bpeflow.run_dir.run_report import (
    BackendReport,
    CorpusReport,
    CountingReport,
    EngineReport,
    LearningReport,
    NodeReport,
    RunReport,
    SampleReport,
    SourceReport,
    StageReport,
    TokenReport,
    Versions,
)
from bpeflow.training.learn import LearnedMerges
from bpeflow.vocab import Merge, Vocab

if TYPE_CHECKING:
    from bpeflow.engines.distributed import DistributedCounting
    from bpeflow.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        spec: the content of the tokenizer of the largest size asked for; None with `skip_merge`.
        report: what ``run.json`` holds.
        counts: the pre-token counts.
        learned: the merges with their counts and the backend's statistics; None with `skip_merge`, and where `resume`
            finds a finished run.

    >>> from bpeflow import train
    >>> result = train({"input": iter(["low low low", "lower"]), "vocab_size": 258})
    >>> result.merges, len(result.vocab), result.report.learning.learned
    (((b'o', b'w'),), 258, 1)
    >>> result.tokenizer.encode("low")
    [108, 257]
    """

    spec: TokenizerSpec | None
    report: RunReport = field(repr=False)
    counts: PretokenCounts = field(repr=False)
    learned: LearnedMerges | None = field(default=None, repr=False)

    @property
    def vocab(self) -> Vocab | None:
        """The vocabulary; None with `skip_merge`."""
        return self.spec.vocab if self.spec else None

    @property
    def merges(self) -> tuple[Merge, ...]:
        """The merges by rank; empty with `skip_merge`."""
        return self.spec.vocab.merges if self.spec else ()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ConfigError: with `skip_merge` the run has no vocabulary.
        """
        from bpeflow import Tokenizer  # the public class, which trains

        if self.spec is None:
            raise ConfigError("skip_merge leaves no vocabulary for a tokenizer; train without it")
        return Tokenizer.from_spec(self.spec)


def start_report(settings: Settings) -> RunReport:
    """Return a report with everything that is known before the work: settings and versions."""
    system = os.uname()
    return RunReport(
        bpeflow=__version__,
        command=tuple(sys.argv),
        settings=settings.model_dump(mode="json"),
        versions=Versions(
            python=".".join(map(str, sys.version_info[:3])),
            numpy=np.__version__,
            regex=getattr(sys.modules.get("regex"), "__version__", None),
            platform=" ".join((system.sysname, system.release, system.machine)),
            cores=available_cores(),
        ),
    )


def describe_corpus(corpus: CorpusCounter, counted: CorpusCounts) -> CorpusReport:
    """Describe the corpus that was counted."""
    counts = counted.counts
    return CorpusReport(
        files=counted.files,
        sources=_describe_sources(corpus, counted),
        bytes=counted.documents.bytes,
        documents=counted.documents.documents,
        skipped_documents=counted.documents.skipped_documents,
        bad_records=counted.documents.bad_records,
        pattern=corpus.pretokenizer.regex,
        scanner=corpus.scanner,
        instructions=chosen_instructions() if corpus.scanner == "native" else None,
        unicode=corpus.unicode,
        normalizer=corpus.settings.normalizer,
        normalizer_unicode=UNICODE_VERSION if corpus.settings.normalizer else None,
        unmatched_bytes=counted.documents.unmatched_bytes,
        pretokens=counts.total,
        pretoken_bytes=counts.total_bytes,
        distinct_pretokens=len(counts),
        distinct_pretoken_bytes=len(counts.data),
    )


def _describe_sources(corpus: CorpusCounter, counted: CorpusCounts) -> tuple[SourceReport, ...]:
    """Describe each source, if there are several or one with settings of its own."""
    sources, statistics = corpus.corpus.sources, counted.documents.sources
    if sources == [Source()]:
        return ()
    described = []
    for number, (source, files) in enumerate(zip(sources, corpus.corpus.file_counts(), strict=True)):
        documents = counted.documents if len(sources) == 1 else DocumentStatistics()
        documents = statistics[number] if number < len(statistics) else documents
        described.append(
            SourceReport(
                name=source.name,
                weight=source.weight,
                sample=None if source.sample is None else SampleReport(**asdict(source.sample)),
                files=files,
                bytes=documents.bytes,
                documents=documents.documents,
                skipped_documents=documents.skipped_documents,
                bad_records=documents.bad_records,
            )
        )
    return tuple(described)


def describe_counting(
    corpus: CorpusCounter, counted: CorpusCounts, engine: DistributedCounting | None = None
) -> CountingReport:
    """Describe how the corpus was counted, and by which engine if not the local one."""
    in_process = counted.in_process and engine is None
    return CountingReport(
        seconds=counted.seconds,
        memory_limit=counted.memory_limit,
        spilled=counted.spilled,
        segments=counted.segments,
        in_process=in_process,
        threads=counted.counters if in_process else 1,
        stages=describe_stages(counted),
        fingerprint=corpus.fingerprint.summary(),
        engine=None if engine is None else _describe_engine(engine),
    )


def _describe_engine(engine: DistributedCounting) -> EngineReport:
    tally = engine.tally
    nodes = {
        name: NodeReport(
            tasks=node.tasks,
            seconds=node.seconds,
            cpu_seconds=node.cpu_seconds,
            peak_memory_bytes=node.peak_memory,
        )
        for name, node in sorted(tally.nodes.items())
    }
    return EngineReport(kind=engine.settings.kind, tasks=tally.tasks, attempts=tally.attempts, nodes=nodes)


def describe_stages(counted: CorpusCounts) -> dict[str, StageReport]:
    """Describe each stage of the counting pipeline, with its workers' figures added up."""
    stages = {stage: list(workers) for stage, workers in groupby(counted.workers, key=lambda worker: worker.stage)}
    # The chunk reader only plans what others read, and the size of a stream is known only once it has been read: both
    # are given the bytes of all documents.
    of_documents = {"chunk reader", "counter"} if "stream reader" in stages else {"chunk reader"}
    described = {
        stage: _describe_stage(workers, counted.documents.bytes if stage in of_documents else None)
        for stage, workers in stages.items()
    }
    reducer = StageReport(
        workers=1,
        seconds=counted.reducer_seconds,
        bytes=counted.reduced_bytes,
        mb_per_second=_mb_per_second(counted.reduced_bytes, counted.reducer_seconds),
    )
    return {**described, "reducer": reducer}


def _describe_stage(workers: Iterable[WorkerReport], size: int | None) -> StageReport:
    workers = list(workers)
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


def describe_learning(
    learned: LearnedMerges, vocab: Vocab, seconds: float, fingerprint: dict[str, Any]
) -> LearningReport:
    """Describe the merges that were learned."""
    longest = vocab.longest_token
    new = len(learned) - learned.replayed
    return LearningReport(
        replayed=learned.replayed,
        resumed=learned.resumed,
        learned=new,
        wanted=learned.wanted,
        seconds=seconds,
        lowest_count=learned.counts[-1] if new else None,
        backend=BackendReport.of(learned.backend, learned.statistics),
        vocab_size=len(vocab),
        longest_token=TokenReport(text=longest.decode(errors="replace"), bytes=len(longest), hex=longest.hex()),
        fingerprint=fingerprint,
        thinned=learned.thinned,
    )
