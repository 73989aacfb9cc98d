"""The command lines that run bpeflow, as users type them, and the results of those runs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contender import Job, Outcome
from bpeflow.pretokenize.patterns import NAMED_PATTERNS

MERGES_FILE = "merges.txt"


def count_arguments(job: Job, counters: int | None = None) -> list[str]:
    """Return the arguments that count files."""
    return [*_from_text(job, counters), "--skip_merge", *_set(*_pattern(job))]


def train_arguments(job: Job, settings: Sequence[str] = ()) -> list[str]:
    """Return the arguments that train on files. A pattern in the settings replaces the job's pattern."""
    pattern = [] if any(setting.startswith("pattern=") for setting in settings) else _pattern(job)
    return [*_from_text(job, None), "--vocab_size", str(job.vocab_size), *_set(*settings, *pattern)]


def merge_arguments(job: Job, settings: Sequence[str] = ()) -> list[str]:
    """Return the arguments that learn a vocabulary from counts."""
    return [
        *("-m", "bpeflow", "merge", "--counts", str(job.counts), "--out_dir", str(job.out_dir)),
        *("--vocab_size", str(job.vocab_size), *_set(*settings)),
    ]


def pattern_setting(pattern: str) -> str:
    return f"pattern={json.dumps(pattern)}"  # JSON is valid YAML


def read_report(out_dir: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((out_dir / "run.json").read_text(encoding="utf-8"))
    return run


def learning_outcome(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    """Return the number of merges and their checksum, which must be the same for all backends in every round."""
    checksum = zlib.crc32((out_dir / MERGES_FILE).read_bytes())
    return {"merges": read_report(out_dir)["learning"]["learned"], "checksum": checksum}


def _from_text(job: Job, counters: int | None) -> list[str]:
    return [
        *("-m", "bpeflow", "--input", *job.files, "--out_dir", str(job.out_dir)),
        *("-c", str(counters or job.processes)),
    ]


def _pattern(job: Job) -> list[str]:
    """Return the settings of the job's pattern. The peers drop text that a custom pattern does not match."""
    named = job.pattern in NAMED_PATTERNS
    return [] if job.pattern == "gpt2" else [pattern_setting(job.pattern), *([] if named else ["unmatched=drop"])]


def _set(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]
