"""bpeflow's command lines, as a user types them, and what its runs leave to be read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contender import Job, Outcome

MERGES_FILE = "merges.txt"


def count_arguments(job: Job, counters: int | None = None, settings: Sequence[str] = ()) -> list[str]:
    """Files → counts."""
    return [*_from_text(job, counters), "--skip_merge", *_set(*settings, *_pattern(job))]


def train_arguments(job: Job, settings: Sequence[str] = ()) -> list[str]:
    """Files → vocabulary. A pattern among the settings is in the place of the job's."""
    pattern = [] if any(setting.startswith("pattern=") for setting in settings) else _pattern(job)
    return [*_from_text(job, None), "--vocab_size", str(job.vocab_size), *_set(*settings, *pattern)]


def merge_arguments(job: Job, settings: Sequence[str] = ()) -> list[str]:
    """Counts → vocabulary."""
    return [
        *("-m", "bpeflow", "merge", "--counts", str(job.counts), "--out_dir", str(job.out_dir)),
        *("--vocab_size", str(job.vocab_size), *_set(*settings)),
    ]


def pattern_setting(pattern: str) -> str:
    return f"pattern={json.dumps(pattern)}"  # JSON is YAML, too


def read_report(out_dir: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((out_dir / "run.json").read_text(encoding="utf-8"))
    return run


def outcome_of_merging(out_dir: Path, stdout: str) -> Outcome:
    """How many merges there are, and a checksum of them all, by which the backends are compared in each round."""
    checksum = zlib.crc32((out_dir / MERGES_FILE).read_bytes())
    return {"merges": read_report(out_dir)["learning"]["learned"], "checksum": checksum}


def _from_text(job: Job, counters: int | None) -> list[str]:
    return [
        *("-m", "bpeflow", "--input", *job.files, "--out_dir", str(job.out_dir)),
        *("-c", str(counters or job.processes)),
    ]


def _pattern(job: Job) -> list[str]:
    return [] if job.pattern == "gpt2" else [pattern_setting(job.pattern)]


def _set(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]
