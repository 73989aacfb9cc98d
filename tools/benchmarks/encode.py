"""`bench.py encode`: text to ids and back, with a tokenizer that is ready; one kind of work at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender, Job, Outcome, Subject
from benchmarks.process import Measurement
from bpeflow.pretokenize.patterns import NAMED_PATTERNS

SCRIPT = Path(__file__).parent / "peers" / "encode.py"
GPT2 = frozenset({"gpt2"})

WORKS = {
    "first": "the whole input, the first call of a process",
    "warm": "the whole input, the median of three calls after the first",
    "lines": "all lines, in one call, to lists",
    "short": "strings of 20 characters, up to 100,000 of them, each in a call of its own, in one thread",
    "decode": "all ids to bytes, in one thread",
}


def _contender(name: str, package: str | None, note: str, on_request: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        named = NAMED_PATTERNS.get(job.pattern)
        pattern = named.regex if named else job.pattern
        return [str(SCRIPT), name, job.work, str(job.processes), pattern, str(job.tokenizer), *job.files]

    return Contender(
        name,
        arguments,
        note,
        package,
        GPT2 if package in ("gigatoken", "tokenizers") else None,
        read_outcome=_outcome,
        read_step=_seconds,
        on_request=on_request,
    )


def _told(stdout: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return told


def _outcome(out_dir: Path, stdout: str) -> Outcome:
    return {key: value for key, value in _told(stdout).items() if key != "seconds"}


def _seconds(out_dir: Path, measurement: Measurement) -> float:
    return float(_told(measurement.stdout)["seconds"])


_PIECES = "gets the text in pieces of 0.5 MB, read, decoded and cut beforehand"

SUBJECT = Subject(
    "encode",
    "text → ids → text, without the start and the loading of the tokenizer",
    (
        _contender(
            "bpeflow", None, "Tokenizer.encode_to_array of the file's bytes, which it reads; encode_batch; encode"
        ),
        _contender("bpeflow-python", None, "the same with encoder='python'", on_request=True),
        _contender("gigatoken", "gigatoken", "encode_files, which reads the file; encode_batch_list; encode"),
        _contender("tiktoken", "tiktoken", f"encode_to_numpy in a pool of threads, {_PIECES}; encode_batch; encode"),
        _contender("huggingface", "tokenizers", f"encode_batch_fast, {_PIECES}, or in groups of lines; encode"),
    ),
    works=WORKS,
)
