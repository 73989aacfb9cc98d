"""`bench.py patterns`: counting and encoding with named patterns, and with others beside them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.contender import Contender, Job, Outcome, Subject
from benchmarks.process import Measurement

SCRIPT = Path(__file__).parent / "peers" / "patterns.py"

#: The patterns by the names of their rows: those with a scanner of their own, other published ones, and common ones.
PATTERNS = {
    **{name: name for name in ("gpt2", "cl100k", "o200k", "llama3", "qwen2")},
    **{name: name for name in ("tekken", "kimi_k2", "qwen3_5", "deepseek_v3", "bloom", "starcoder", "superbpe")},
    "words": r"\S+|\s+",
    "digits": r"\p{N}+|\P{N}+",
}

_NOTES = {
    "count": "bpeflow.count of the files",
    "encode": "Tokenizer.encode_to_numpy, first call, with 32,000 entries trained with the same pattern",
}


def _contender(work: str, name: str, in_regex: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        return [str(SCRIPT), work, str(job.processes), PATTERNS.get(name, job.pattern), *job.files]

    return Contender(
        f"{work} {name}{' (regex)' if in_regex else ''}",
        arguments,
        f"{_NOTES[work]}{', by the regex module' if in_regex else ''}",
        read_outcome=_outcome,
        read_step=_seconds,
        on_request=in_regex or name not in PATTERNS,
        environment={"BPEFLOW_INSTRUCTIONS": "regex"} if in_regex else {},
    )


def _outcome(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    """Return the size of the text: the results of different patterns differ."""
    return {"bytes": int(json.loads(stdout.splitlines()[-1])["bytes"])}


def _seconds(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    return float(json.loads(measurement.stdout.splitlines()[-1])["seconds"])


SUBJECT = Subject(
    "patterns",
    "counting and encoding, each with several split patterns, without the start of the process",
    (
        *(_contender(work, name) for work in _NOTES for name in PATTERNS),
        *(_contender(work, "--pattern") for work in _NOTES),
        *(_contender("count", name, in_regex=True) for name in ("gpt2", "tekken", "deepseek_v3")),
    ),
    reference="count gpt2",
    step="count or encode",
)
