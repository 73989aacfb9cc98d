"""Comparing merge backends on the same counts: check that their merges are equal, and measure each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from bpeflow.backends import choose_backend
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import BackendsDifferError, ConfigError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.training.learn import LearnedMerges, learn_with_settings
from bpeflow.vocab import Merge

#: Fields of the statistics that are times. The others are the same in every round.
TIMES = ("setup_seconds", "selection_seconds", "update_seconds")


@dataclass
class Contender:
    """A backend with a number of threads, and its measurements, one per round."""

    backend: str
    threads: int | None
    seconds: list[float] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.backend if self.threads is None else f"{self.backend} with {self.threads} thread(s)"

    def add(self, learned: LearnedMerges, seconds: float) -> None:
        """Add the measurement of a round."""
        self.seconds.append(seconds)
        self.statistics.append(asdict(learned.statistics))

    def to_dict(self) -> dict[str, Any]:
        """Return all seconds, and the statistics with the median of each time."""
        times = {name: median(s[name] for s in self.statistics) for name in TIMES}
        return {
            "backend": self.backend,
            "seconds": self.seconds,
            "median_seconds": median(self.seconds),
            **self.statistics[-1],
            **times,
        }


def contenders(backends: Sequence[str], threads: Sequence[int]) -> list[Contender]:
    """Combine each backend with each number of threads; once only for a backend that uses a single thread.

    Raises:
        BackendUnavailableError: a backend is not available.
        ConfigError: there is nothing to compare.
    """
    found = [
        Contender(name, count)
        for name in dict.fromkeys(choose_backend(name).name for name in backends)
        for count in (dict.fromkeys(threads) if choose_backend(name).multithreaded else (None,))
    ]
    if not found:
        raise ConfigError("nothing to compare: give backends and numbers of threads")
    return found


def compare(
    counts: PretokenCounts,
    settings: MergeSettings,
    entrants: Sequence[Contender],
    rounds: int,
    base: TokenizerSpec | None = None,
    on_result: Callable[[Contender], object] = str,
) -> LearnedMerges:
    """Let every contender learn `rounds` times, in turn, and return the merges.

    Each round starts with the next contender, so that none always runs on a machine warmed up by the same other one.

    Args:
        counts: the counts to learn from.
        settings: the settings; backend and threads are the contender's.
        entrants: the contenders, which collect the measurements.
        rounds: repetitions.
        base: the tokenizer to extend.
        on_result: called after each measurement.

    Raises:
        BackendsDifferError: at the first difference between two contenders.
    """
    reference: tuple[Contender, LearnedMerges] | None = None
    for contender in _turns(entrants, rounds):
        own = settings.model_copy(update={"backend": contender.backend, "threads": contender.threads})
        started = perf_counter()
        learned = learn_with_settings(counts, own, base=base)
        contender.add(learned, perf_counter() - started)
        reference = reference or (contender, learned)
        _check_equal(*reference, contender, learned)
        on_result(contender)
    if reference is None:
        raise ConfigError("nothing to compare: need at least one contender and one round")
    return reference[1]


def _turns(entrants: Sequence[Contender], rounds: int) -> Iterator[Contender]:
    for turn in range(rounds):
        first = turn % len(entrants)
        yield from (*entrants[first:], *entrants[:first])


def _check_equal(one: Contender, expected: LearnedMerges, other: Contender, found: LearnedMerges) -> None:
    ours, theirs = (list(zip(merges.pairs, merges.counts, strict=True)) for merges in (expected, found))
    if ours == theirs:
        return
    first = next((i for i, both in enumerate(zip(ours, theirs, strict=False)) if both[0] != both[1]), None)
    if first is None:
        raise BackendsDifferError(f"{one} learned {len(ours):,} merges and {other} {len(theirs):,}; please report this")
    raise BackendsDifferError(
        f"merge {first} differs: {one} learned {_describe(*ours[first])}, {other} {_describe(*theirs[first])}; please "
        "report this"
    )


def _describe(pair: Merge, count: int) -> str:
    return f"{pair[0]!r} {pair[1]!r} ({count:,} times)"
