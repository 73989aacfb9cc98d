"""``run.json``: what a run was asked to do, on what, with what, and what came of it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

from bpeflow.atomic import atomic_path
from bpeflow.config import Settings
from bpeflow.cores import available_cores
from bpeflow.corpus import DocumentStatistics, Source
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.pipeline import CorpusCounter, CorpusCounts
from bpeflow.counting.table import chosen_instructions
from bpeflow.errors import FormatError
from bpeflow.flow import WorkerReport, peak_memory
from bpeflow.merging import LearnedMerges
from bpeflow.sealed import is_sealed, sealed, unsealed
from bpeflow.vocab import Vocab

RUN_FILE = "run.json"


def write_run(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report, whole or not at all, with its checksum."""
    text = json.dumps(sealed(report), indent=2, ensure_ascii=False) + "\n"
    with atomic_path(path) as temporary:  # what is not UTF-8 in a file's name becomes \udcXX, which JSON reads as such
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_run(folder: Path, name: str = RUN_FILE) -> dict[str, Any]:
    """Read the report of a run folder; empty where there is none. Raises `FormatError` for one that is damaged."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from error
    if is_sealed(report):
        try:
            report = unsealed(report)
        except ValueError as error:
            raise FormatError(f"{path}: was changed or damaged after the run: {error}") from error
    if not isinstance(report, dict) or not isinstance(report.get("settings"), dict):
        raise FormatError(f"{path}: not the report of a run: it has no settings")
    return report


def check_counts(report: Mapping[str, Any], counts: PretokenCounts, path: Path) -> None:
    """Raise `FormatError` if the report in the folder of these counts tells of others."""
    told = report.get("corpus", {}).get("pretokens"), report.get("corpus", {}).get("distinct_pretokens")
    if report and told != (counts.total, len(counts)):
        raise FormatError(
            f"{path.parent / RUN_FILE} is not of the run that made {path}: it tells of other counts. Move the "
            "counts to a folder of their own, and name special_tokens and all that differs from the defaults"
        )


def describe_run(settings: Settings) -> dict[str, Any]:
    """What is known before the work: settings and versions."""
    from importlib.metadata import version  # slow to import: at the end of a run is soon enough

    return {
        "bpeflow": version("bpeflow"),
        "command": sys.argv,
        "settings": settings.model_dump(mode="json"),
        "versions": {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "regex": version("regex"),
            "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": available_cores(),
        },
    }


def describe_corpus(corpus: CorpusCounter, counted: CorpusCounts) -> dict[str, Any]:
    """What was counted."""
    counts = counted.counts
    return {
        "files": counted.files,
        **_describe_sources(corpus, counted),
        "bytes": counted.documents.bytes,
        "documents": counted.documents.documents,
        "skipped_documents": counted.documents.skipped_documents,
        "pattern": corpus.pretokenizer.regex,
        "scanner": corpus.scanner,
        "instructions": chosen_instructions() if corpus.scanner == "native" else None,
        "unicode": corpus.unicode,
        "pretokens": counts.total,
        "pretoken_bytes": counts.total_bytes,
        "distinct_pretokens": len(counts),
        "distinct_pretoken_bytes": len(counts.data),
    }


def _describe_sources(corpus: CorpusCounter, counted: CorpusCounts) -> dict[str, Any]:
    """What each source was, where there are several or one with settings of its own."""
    sources, statistics = corpus.corpus.sources, counted.documents.sources
    if sources == [Source()]:
        return {}
    described = []
    for number, (source, files) in enumerate(zip(sources, corpus.corpus.file_counts(), strict=True)):
        documents = counted.documents if len(sources) == 1 else DocumentStatistics()
        documents = statistics[number] if number < len(statistics) else documents
        described.append(
            {
                "name": source.name,
                "weight": source.weight,
                "sample": None if source.sample is None else asdict(source.sample),
                "files": files,
                "bytes": documents.bytes,
                "documents": documents.documents,
                "skipped_documents": documents.skipped_documents,
            }
        )
    return {"sources": described}


def describe_counting(corpus: CorpusCounter, counted: CorpusCounts) -> dict[str, Any]:
    """How it was counted; by several runs, if it was resumed."""
    return {
        "seconds": counted.seconds,
        "memory_limit": counted.memory_limit,
        "spilled": asdict(counted.spilled),
        "segments": asdict(counted.segments) if counted.segments else None,
        "stages": describe_stages(counted),
        "fingerprint": corpus.fingerprint.summary(),
    }


def describe_stages(counted: CorpusCounts) -> dict[str, Any]:
    """What each stage of the pipeline did: its workers added up.

    Bytes are text for the chunk reader and the counters, and packed counts for the mergers and the reducer. The seconds
    of a stage are from its start to its end, waiting included; ``cpu_seconds`` tells the work.
    """
    stages = {stage: list(workers) for stage, workers in groupby(counted.workers, key=lambda worker: worker.stage)}
    described = {stage: _describe_stage(workers) for stage, workers in stages.items()}
    reader = described["chunk reader"]  # its rate is that of the bytes that it plans; it reads few of them
    reader |= {"bytes": counted.documents.bytes, "mb_per_second": _rate(counted.documents.bytes, reader["seconds"])}
    if "stream reader" in described:  # what streams unfold to is known behind it
        described["counter"] |= {
            "bytes": counted.documents.bytes,
            "mb_per_second": _rate(counted.documents.bytes, described["counter"]["seconds"]),
        }
    reducer: dict[str, Any] = {"workers": 1, "seconds": counted.reducer_seconds, "bytes": counted.reduced_bytes}
    reducer["mb_per_second"] = _rate(counted.reduced_bytes, counted.reducer_seconds)
    described["counter"]["threads"] = counted.counters if counted.in_process else 1
    return {"in_process": counted.in_process, **described, "reducer": reducer}


def _describe_stage(workers: Iterable[WorkerReport]) -> dict[str, Any]:
    workers = list(workers)
    seconds = max(worker.wall_seconds for worker in workers)
    described: dict[str, Any] = {
        "workers": len(workers),
        "items_in": sum(worker.items_in for worker in workers),
        "items_out": sum(worker.items_out for worker in workers),
        "seconds": seconds,
        "cpu_seconds": sum(worker.cpu_seconds for worker in workers),
        "peak_memory_bytes": max(worker.peak_memory for worker in workers),
    }
    done = sum(worker.weight_done for worker in workers)
    return described | {"bytes": done, "mb_per_second": _rate(done, seconds)}


def _rate(size: int, seconds: float) -> float | None:
    return size / 1e6 / seconds if seconds > 0 else None


def describe_merges(learned: LearnedMerges, vocab: Vocab, seconds: float) -> dict[str, Any]:
    """What was learned, after the initial merges, if there were any; some of it by the run that this goes on with."""
    longest = vocab.longest_token
    new = len(learned) - learned.replayed
    return {
        "replayed": learned.replayed,
        "taken_over": learned.taken_over,
        "learned": new,
        "wanted": learned.wanted,
        "seconds": seconds,
        "lowest_count": learned.counts[-1] if new else None,
        "backend": {"name": learned.backend, **asdict(learned.statistics)},
        "vocab_size": len(vocab),
        "longest_token": {"text": longest.decode(errors="replace"), "bytes": len(longest), "hex": longest.hex()},
    }


def describe_end(seconds: float, files: Iterable[str]) -> dict[str, Any]:
    """What is known when all is written; `files` by their names in the run folder."""
    return {
        "seconds": seconds,
        "peak_memory_bytes": peak_memory(),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "files": [*files],
    }
