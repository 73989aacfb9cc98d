"""`bench.py encode`: text to ids and back, with a loaded tokenizer; one kind of work at a time."""

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
    "first": "the whole input, first call of the process",
    "warm": "the whole input, median of three calls after the first",
    "file": "the whole input to a token file, first call; peers, which write no files, to memory",
    "lines": "all lines in one call, to lists",
    "arrays": "all lines in one call, to one array of ids; tiktoken and HuggingFace, by way of lists",
    "short": "up to 100,000 strings of 20 characters, one call each, one thread",
    "load": "loading the tokenizer, the second time in the process, and encoding 1,000 characters",
    "decode": "all ids to bytes, one thread",
}


def _contender(name: str, package: str | None, note: str, on_request: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        pattern = NAMED_PATTERNS.get(job.pattern, job.pattern)
        folders = [str(job.tokenizer), str(job.out_dir)]
        return [str(SCRIPT), name, job.work, str(job.processes), pattern, *folders, *job.files]

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


def _result(stdout: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return result


def _outcome(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    return {key: value for key, value in _result(stdout).items() if key != "seconds"}


def _seconds(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    return float(_result(measurement.stdout)["seconds"])


_PIECES = "given pieces of 0.5 MB that were read, decoded and cut beforehand"

SUBJECT = Subject(
    "encode",
    "text → ids → text, without the start of the process and the loading of the tokenizer",
    (
        _contender(
            "bpeflow",
            None,
            "Tokenizer.encode_to_numpy on the file's bytes, reading included; encode_file; encode_batch; "
            "encode_batch_to_numpy; encode",
        ),
        _contender("bpeflow-python", None, "the same with encoder='python'", on_request=True),
        _contender("gigatoken", "gigatoken", "encode_files, reading included; encode_batch_list; encode_batch; encode"),
        _contender(
            "tiktoken",
            "tiktoken",
            f"encode_to_numpy in a thread pool, {_PIECES}; encode_batch; encode; its ranks are read by bpeflow",
        ),
        _contender("huggingface", "tokenizers", f"encode_batch_fast, {_PIECES}, or groups of lines; encode"),
    ),
    works=WORKS,
)
