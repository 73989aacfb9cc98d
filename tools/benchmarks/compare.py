"""Check the merges of the peers, untimed, against bpeflow configured to follow the peer's rules (its twin)."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.contender import Contender, Job
from benchmarks.ours import MERGES_FILE
from benchmarks.process import measure

#: The parts of each merge, or the whole token if the peer does not report the parts; in printable form.
Merges = list[tuple[str, ...]]


@dataclass(frozen=True)
class Comparison:
    """A peer's merges compared with its twin's.

    Attributes:
        merges: the number of merges that the twin learned.
        first_difference: the lowest merge rank at which the two differ, or None if the peer learned every merge of the
            twin. (Some peers have room for more merges.)
        told: the peer's merge of that rank, empty if it has none.
        expected: the twin's merge of that rank.
        error: why the two could not be compared.
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
    """Run each contender that has a twin, and the twins, once more and compare their merges."""
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


def compare(contender: str, twin: str, actual: Merges | str, expected: Merges | str) -> Comparison:
    """Compare two lists of merges. A string instead of a list is the reason why there are none."""
    if isinstance(actual, str):
        return Comparison(contender, twin, error=actual)
    if isinstance(expected, str):
        return Comparison(contender, twin, error=f"{twin}: {expected}")
    if any(len(merge) == 1 for merge in actual):
        expected = [("".join(merge),) for merge in expected]
    for rank, merge in enumerate(expected):
        other = actual[rank] if rank < len(actual) else ()
        if other != merge:
            return Comparison(contender, twin, len(expected), rank, " ".join(other), " ".join(merge))
    return Comparison(contender, twin, len(expected))


def _learn(contender: Contender, job: Job, timeout: float) -> Merges | str:
    """Return a contender's merges, or the error that prevented them."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = [sys.executable, *contender.arguments(replace(job, out_dir=Path(folder), write_merges=True))]
        measurement = measure(command, timeout, contender.environment)
        if measurement.error is not None:
            return measurement.error
        lines = (Path(folder) / MERGES_FILE).read_text(encoding="utf-8").split("\n")
    return [tuple(line.split(" ")) for line in lines[1:] if line]
