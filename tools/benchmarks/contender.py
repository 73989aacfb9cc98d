"""The words of a benchmark: a subject has contenders, and each of them does a job."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process import Measurement

#: What a contender tells of its result, such as how many pre-tokens it found; by this results are compared.
Outcome = Mapping[str, int]


@dataclass(frozen=True)
class Job:
    """What every contender of a run is given: files to read, and a folder to write to that is its own.

    ``counts`` is a run folder or a file of pre-token counts, for the contenders that begin there; ``tell_merges`` asks
    the peers to leave ``merges.txt`` in ``out_dir`` (never while they are timed). ``work`` is one of the subject's
    works, and ``tokenizer`` the folder of the tokenizer that does it.
    """

    inputs: tuple[Path, ...]
    pattern: str
    processes: int
    out_dir: Path
    vocab_size: int = 0
    counts: Path = Path()
    tell_merges: bool = False
    work: str = ""
    tokenizer: Path = Path()

    @property
    def files(self) -> list[str]:
        return [str(path) for path in self.inputs]


def outcome_from_stdout(out_dir: Path, stdout: str) -> Outcome:
    """Take the last line of what a peer's script prints, which is JSON. (Some peers print lines of their own.)"""
    outcome: Outcome = json.loads(stdout.splitlines()[-1])
    return outcome


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    ``arguments(job)`` are those of the Python interpreter that is its process; ``read_outcome(out_dir, stdout)`` tells
    the result after that has ended well. ``package`` is what must be installed, ``patterns`` are those it knows (None:
    all), and ``note`` is what a reader must know to compare fairly.

    Where a subject measures a step of a process, ``read_step(out_dir, measurement)`` tells the seconds of that step; or
    else ``without_step(job)`` are the arguments of a process that does all but the step, and the difference of the two
    medians is taken. ``twin`` is bpeflow made to learn what this peer should learn: their merges are compared.
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
        """Return why it cannot take part, or None if it can."""
        if self.needs_text and not has_text:
            return "cannot begin with counts: give it text, by --input"
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'bpeflow[bench]'"
        if self.patterns is not None and pattern not in self.patterns:
            return f"knows the pattern {', '.join(sorted(self.patterns))} only"
        return None


@dataclass(frozen=True)
class Subject:
    """What is compared: a name, which is the subcommand's, a line of explanation, and the contenders.

    ``reference`` is the contender by which the others are divided. ``step`` names the part of a process that is
    compared (None: all of it). ``learns`` says that there is a vocabulary to learn, of a size that is to be given; and
    ``make_counts`` are the arguments of the process that prepares counts, for a subject that begins with them.
    ``works`` are the kinds of work that it measures with a tokenizer, each with a line of explanation; a run is for one
    of them, which is its step.
    """

    name: str
    description: str
    contenders: tuple[Contender, ...]
    reference: str = "bpeflow"
    step: str | None = None
    learns: bool = False
    make_counts: Callable[[Job], list[str]] | None = None
    works: Mapping[str, str] = field(default_factory=dict)
