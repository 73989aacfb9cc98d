"""The words of a benchmark: a subject has contenders, and each of them does a job."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: What a contender tells of its result, such as how many pre-tokens it found; by this results are compared.
Outcome = Mapping[str, int]


@dataclass(frozen=True)
class Job:
    """What every contender of a run is given: files to read, and a folder to write to that is its own."""

    inputs: tuple[Path, ...]
    pattern: str
    processes: int
    out_dir: Path

    @property
    def files(self) -> list[str]:
        return [str(path) for path in self.inputs]


def outcome_from_stdout(out_dir: Path, stdout: str) -> Outcome:  # noqa: ARG001
    """Take the last line of what a peer's script prints, which is JSON. (Some peers print lines of their own.)"""
    outcome: Outcome = json.loads(stdout.splitlines()[-1])
    return outcome


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    ``arguments(job)`` are those of the Python interpreter that is its process; ``read_outcome(out_dir, stdout)`` tells
    the result after that has ended well. ``package`` is what must be installed, ``patterns`` are those it knows (None:
    all), and ``note`` is what a reader must know to compare fairly.
    """

    name: str
    arguments: Callable[[Job], list[str]]
    note: str
    package: str | None = None
    patterns: frozenset[str] | None = None
    read_outcome: Callable[[Path, str], Outcome] = outcome_from_stdout

    def unavailable(self, pattern: str) -> str | None:
        """Return why it cannot take part, or None if it can."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'bpeflow[bench]'"
        if self.patterns is not None and pattern not in self.patterns:
            return f"knows the pattern {', '.join(sorted(self.patterns))} only"
        return None


@dataclass(frozen=True)
class Subject:
    """What is compared: a name, which is the subcommand's, a line of explanation, and the contenders."""

    name: str
    description: str
    contenders: tuple[Contender, ...]
