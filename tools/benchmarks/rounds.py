"""Rounds: every contender once in each, in turning order, so that a slow minute of the machine meets all of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from benchmarks.contender import Contender, Job, Outcome
from benchmarks.process import Measurement, measure


@dataclass
class Result:
    """All measurements of a contender, in the order of rounds, and what it told of its result."""

    contender: Contender
    measurements: list[Measurement] = field(default_factory=list)
    outcome: Outcome = field(default_factory=dict)
    error: str | None = None

    @property
    def seconds(self) -> list[float]:
        """The wall times of the rounds that went well."""
        return [measurement.seconds for measurement in self.measurements if measurement.error is None]

    @property
    def median_seconds(self) -> float | None:
        """The median; None for a contender that has failed, be it in one round."""
        return None if self.error or not self.seconds else median(self.seconds)


def turns(contenders: Sequence[Contender], rounds: int) -> Iterator[tuple[int, Contender]]:
    """Yield (round, contender): all of them in each round, each round beginning with the next one.

    Three contenders: A B C, B C A, C A B, A B C, …
    """
    for number in range(rounds):
        first = number % max(len(contenders), 1)
        for contender in (*contenders[first:], *contenders[:first]):
            yield number, contender


def run_rounds(
    contenders: Sequence[Contender],
    job: Job,
    rounds: int,
    timeout: float,
    progress: Callable[[int, Contender, Measurement], None],
) -> list[Result]:
    """Measure every contender ``rounds`` times. One that has failed does not come on again."""
    results = {contender.name: Result(contender) for contender in contenders}
    for number, contender in turns(contenders, rounds):
        result = results[contender.name]
        if result.error is None:
            _take_turn(result, job, timeout)
            progress(number, contender, result.measurements[-1])
    return list(results.values())


def _take_turn(result: Result, job: Job, timeout: float) -> None:
    contender = result.contender
    # Rayon, which the peers in Rust are built on, takes its number of threads from there.
    threads = {"RAYON_NUM_THREADS": str(job.processes), "TOKENIZERS_PARALLELISM": "true"}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = [sys.executable, *contender.arguments(replace(job, out_dir=Path(folder)))]
        measurement = measure(command, timeout, threads)
        if measurement.error is None:
            try:
                outcome = contender.read_outcome(Path(folder), measurement.stdout)
                if result.outcome and outcome != result.outcome:
                    raise ValueError(f"{dict(outcome)} after {dict(result.outcome)} in an earlier round")
                result.outcome = outcome
            except (OSError, LookupError, ValueError) as error:
                measurement = replace(measurement, error=f"its result cannot be told: {error}")
    result.error = measurement.error
    result.measurements.append(measurement)
