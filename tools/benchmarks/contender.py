"""The terms of a benchmark: a subject has contenders, and each contender does a job."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process import Measurement
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, PUBLISHED_PATTERNS

#: Figures of a contender's result, such as the number of pre-tokens. They serve to check that the results agree.
Outcome = Mapping[str, int]


@dataclass(frozen=True)
class Job:
    """The task of every contender in a benchmark.

    Attributes:
        inputs: the text files to read.
        pattern: the name of a split pattern, or a regular expression.
        processes: the number of processes or threads to use.
        out_dir: the folder to write to; each contender gets its own.
        vocab_size: the vocabulary size to train to.
        counts: a run folder or a file of pre-token counts, for contenders that start from counts.
        write_merges: whether peers write ``merges.txt`` to `out_dir`; never set while they are timed.
        work: the kind of work, one of the subject's `works`.
        tokenizer: the folder of the tokenizer to encode and decode with.
    """

    inputs: tuple[Path, ...]
    pattern: str
    processes: int
    out_dir: Path
    vocab_size: int = 0
    counts: Path = Path()
    write_merges: bool = False
    work: str = ""
    tokenizer: Path = Path()

    @property
    def files(self) -> list[str]:
        return [str(path) for path in self.inputs]


def regex_of(pattern: str) -> str | None:
    """Return the regular expression of a pattern; None if it has several steps."""
    meaning = PUBLISHED_PATTERNS.get(pattern, pattern)
    return NAMED_PATTERNS.get(meaning, meaning) if isinstance(meaning, str) else None


def outcome_from_stdout(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    """Read the outcome from the last line that a peer's script printed, as JSON. Peers may print other lines before."""
    outcome: Outcome = json.loads(stdout.splitlines()[-1])
    return outcome


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes:
        name: its name in the table and in `--only`.
        arguments: returns the arguments for the Python interpreter of its process, given the job.
        note: a remark that readers need for a fair comparison.
        package: the package that must be installed.
        patterns: the split patterns that it supports; None for all.
        read_outcome: returns the outcome of a successful process, given its output folder and standard output.
        read_step: returns the seconds of the measured step, given the output folder and the measurement, for subjects
            that measure one step of a process.
        without_step: returns the arguments of a process that does everything but the step. It is used for contenders
            that have no `read_step`: the step takes the difference of the two medians.
        twin: bpeflow configured to learn the merges that this peer should learn. The two lists are compared.
        needs_text: whether it cannot start from counts.
        on_request: whether it runs only if `--only` names it.
        environment: additional environment variables of its process.
    """

    name: str
    arguments: Callable[[Job], list[str]]
    note: str
    package: str | None = None
    patterns: frozenset[str] | None = None
    read_outcome: Callable[[Path, str], Outcome] = outcome_from_stdout
    read_step: Callable[[Path, Measurement], float] | None = None
    without_step: Callable[[Job], list[str]] | None = None
    twin: Contender | None = None
    needs_text: bool = True
    on_request: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def unavailable(self, pattern: str, *, has_text: bool = True) -> str | None:
        """Return the reason why this contender cannot take part, or None if it can."""
        if self.needs_text and not has_text:
            return "cannot start from counts: pass text with --input"
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'bpeflow[bench]'"
        if self.patterns is not None and pattern not in self.patterns:
            return f"supports only the pattern {', '.join(sorted(self.patterns))}"
        if self.package and regex_of(pattern) is None:
            return "supports only patterns of one step"
        return None


@dataclass(frozen=True)
class Subject:
    """A thing to compare; each subject is a subcommand.

    Attributes:
        name: the name of the subcommand.
        description: one line of explanation.
        contenders: the rows of its table.
        reference: the contender whose time the other times are divided by.
        step: the part of a process that is compared; None for the whole process.
        learns: whether contenders learn a vocabulary, so that the subcommand takes `--vocab_size`.
        make_counts: returns the arguments of the process that prepares counts, for subjects that start from counts.
        works: the kinds of work that are measured with a tokenizer, each with one line of explanation. A benchmark
            measures one of them, as its step.
    """

    name: str
    description: str
    contenders: tuple[Contender, ...]
    reference: str = "bpeflow"
    step: str | None = None
    learns: bool = False
    make_counts: Callable[[Job], list[str]] | None = None
    works: Mapping[str, str] = field(default_factory=dict)
