"""`bench.py merge`: from pre-token counts to merges.

bpeflow and gigabpe report the seconds of the step. The other peers do not, and they cannot start from counts. Their
step is the difference between two processes, one of which learns no merge.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import ours
from benchmarks.contender import Contender, Job, Subject
from benchmarks.process import Measurement
from benchmarks.train import GPT2, peer_arguments

#: A vocabulary of 256 bytes and the separator leaves nothing to learn.
_NO_MERGES = 257
_DIFFERENCE = (
    f"median of training to N entries minus median of training to {_NO_MERGES}, so work before the first merge, such "
    "as counting all pairs, is left out"
)
_PHASE = re.compile(r"^ *phase2 [^:]+: ([0-9.]+)(ns|µs|ms|s)$", re.MULTILINE)
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def _bpeflow(name: str, note: str, backend: str, threads: int | None = None, on_request: bool = False) -> Contender:
    def arguments(job: Job) -> list[str]:
        return ours.merge_arguments(job, [f"backend={backend}", f"threads={threads or job.processes}"])

    return Contender(
        name,
        arguments,
        note,
        read_outcome=ours.learning_outcome,
        read_step=_seconds_of_run,
        needs_text=False,
        on_request=on_request,
    )


def _seconds_of_run(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    return float(ours.read_report(out_dir)["learning"]["seconds"])


def seconds_of_phases(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    """Add up the second phase that gigabpe reports: alphabet, words as symbols, pair counts, merges."""
    phases = _PHASE.findall(measurement.stderr)
    if not phases:
        raise ValueError("no phase found in its standard error")
    return sum(float(number) * _UNITS[unit] for number, unit in phases)


def _difference(name: str, package: str, note: str) -> Contender:
    return Contender(
        name,
        lambda job: peer_arguments(name, job, job.vocab_size),
        f"{note}; {_DIFFERENCE}",
        package,
        GPT2,
        without_step=lambda job: peer_arguments(name, job, _NO_MERGES),
    )


SUBJECT = Subject(
    "merge",
    "pre-token counts → merges",
    (
        _bpeflow(
            "bpeflow-omp",
            "`python -m bpeflow merge`, --processes threads; the step is learning.seconds in run.json, including the "
            "set-up; the process reads the counts and writes the vocabulary",
            "omp",
        ),
        _bpeflow("bpeflow-omp-1", "the same with one thread", "omp", threads=1),
        _bpeflow("bpeflow-c", "the same with backend c", "c"),
        _bpeflow("bpeflow-python", "the same with backend python", "python", on_request=True),
        Contender(
            "gigabpe",
            lambda job: peer_arguments("gigabpe", job, job.vocab_size),
            "train_bpe, bytelevel, GIGABPE_STATS=1; the step is the sum of the `phase2` lines, including the set-up; "
            "the process also counts",
            "gigabpe",
            GPT2,
            read_step=seconds_of_phases,
            environment={"GIGABPE_STATS": "1"},
        ),
        _difference("gigatoken", "gigatoken", "train_bpe with a TextFileSource"),
        _difference("rustbpe", "rustbpe", "train_from_iterator"),
        _difference("huggingface", "tokenizers", "ByteLevel, BpeTrainer, train_from_iterator"),
    ),
    reference="bpeflow-omp",
    step="learning",
    learns=True,
    make_counts=ours.count_arguments,
)
