"""`bench.py merge`: from pre-token counts to merges.

bpeflow and gigabpe tell the seconds of the step. The other peers do not, and cannot begin with counts: for them it is
the difference of two processes, one of which learns no merge.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import ours
from benchmarks.contender import Contender, Job, Subject
from benchmarks.process import Measurement
from benchmarks.train import GPT2, peer_arguments

#: 256 bytes and the separator: nothing to learn.
_NO_MERGES = 257
_DIFFERENCE = (
    f"medians of training to N and to {_NO_MERGES} entries, the one minus the other; so what it does before the first "
    "merge, such as counting all pairs, is not in it"
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
        read_outcome=ours.outcome_of_merging,
        read_step=_seconds_of_run,
        needs_text=False,
        on_request=on_request,
    )


def _seconds_of_run(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    return float(ours.read_report(out_dir)["learning"]["seconds"])


def seconds_of_phases(out_dir: Path, measurement: Measurement) -> float:  # noqa: ARG001
    """Add up what gigabpe tells of its second phase: alphabet, words as symbols, pair counts, merges."""
    phases = _PHASE.findall(measurement.stderr)
    if not phases:
        raise ValueError("it has told no phases")
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
            "`python -m bpeflow merge`, a thread per process; the step's seconds are learning.seconds in run.json, "
            "set-up included; the process reads the counts and writes the vocabulary",
            "omp",
        ),
        _bpeflow("bpeflow-omp-1", "the same with one thread", "omp", threads=1),
        _bpeflow("bpeflow-c", "the same with the backend c", "c"),
        _bpeflow("bpeflow-python", "the same with the backend python", "python", on_request=True),
        Contender(
            "gigabpe",
            lambda job: peer_arguments("gigabpe", job, job.vocab_size),
            "train_bpe, bytelevel, GIGABPE_STATS=1: the step is the sum of the lines `phase2`, set-up included; the "
            "process counts, too",
            "gigabpe",
            GPT2,
            read_step=seconds_of_phases,
            environment={"GIGABPE_STATS": "1"},
        ),
        _difference("gigatoken", "gigatoken", "train_bpe of a TextFileSource"),
        _difference("rustbpe", "rustbpe", "train_from_iterator"),
        _difference("huggingface", "tokenizers", "ByteLevel, BpeTrainer, train_from_iterator"),
    ),
    reference="bpeflow-omp",
    step="merging",
    learns=True,
    make_counts=ours.count_arguments,
)
