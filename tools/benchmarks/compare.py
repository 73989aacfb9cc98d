"""Whether a peer learns the merges that it should: beside bpeflow, set to the peer's rules, outside of all timing."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.contender import Contender, Job
from benchmarks.ours import MERGES_FILE
from benchmarks.process import measure

#: Both parts of each merge, or where they are not told the whole token; in printable form.
Merges = list[tuple[str, ...]]


@dataclass(frozen=True)
class Comparison:
    """A peer's merges beside its twin's.

    ``first_difference`` is a merge rank; None: all that the twin has learned the peer has learned, too. (Some peers
    have room for more.) ``told`` and ``expected`` are the two merges of that rank, empty where there is none. With an
    ``error`` nothing could be compared.
    """

    contender: str
    twin: str
    merges: int = 0
    first_difference: int | None = None
    told: str = ""
    expected: str = ""
    error: str | None = None


def compare_all(
    contenders: Sequence[Contender], job: Job, timeout: float, progress: Callable[[str], None]
) -> list[Comparison]:
    """Let each contender that has a twin, and each twin, once more learn and tell what."""
    comparisons = []
    learned: dict[str, Merges | str] = {}
    for contender in contenders:
        twin = contender.twin
        if twin is None:
            continue
        for each in (twin, contender):
            if each.name not in learned:
                progress(each.name)
                learned[each.name] = _learn(each, job, timeout)
        comparisons.append(compare(contender.name, twin.name, learned[contender.name], learned[twin.name]))
    return comparisons


def compare(contender: str, twin: str, told: Merges | str, expected: Merges | str) -> Comparison:
    """Compare two lists of merges; a string in the place of one says why it is not there."""
    if isinstance(told, str):
        return Comparison(contender, twin, error=told)
    if isinstance(expected, str):
        return Comparison(contender, twin, error=f"{twin}: {expected}")
    if any(len(merge) == 1 for merge in told):
        expected = [("".join(merge),) for merge in expected]
    for rank, merge in enumerate(expected):
        other = told[rank] if rank < len(told) else ()
        if other != merge:
            return Comparison(contender, twin, len(expected), rank, " ".join(other), " ".join(merge))
    return Comparison(contender, twin, len(expected))


def _learn(contender: Contender, job: Job, timeout: float) -> Merges | str:
    """Return its merges, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = [sys.executable, *contender.arguments(replace(job, out_dir=Path(folder), tell_merges=True))]
        measurement = measure(command, timeout, contender.environment)
        if measurement.error is not None:
            return measurement.error
        lines = (Path(folder) / MERGES_FILE).read_text(encoding="utf-8").split("\n")
    return [tuple(line.split(" ")) for line in lines[1:] if line]
