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
    """All measurements of a contender, in the order of rounds, and what it told of its result.

    ``steps`` are the seconds of the step that it told; ``without_step`` are the measurements of the process that does
    all but the step (see `Contender`).
    """

    contender: Contender
    measurements: list[Measurement] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    without_step: list[Measurement] = field(default_factory=list)
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

    @property
    def step_seconds(self) -> float | None:
        """The median of the step's seconds, or the difference of two medians; None where the step is not known."""
        if self.median_seconds is None:
            return None
        if self.without_step:
            return self.median_seconds - median(measurement.seconds for measurement in self.without_step)
        return median(self.steps) if self.steps else None


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
    environment = {"RAYON_NUM_THREADS": str(job.processes), "TOKENIZERS_PARALLELISM": "true", **contender.environment}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        job = replace(job, out_dir=Path(folder))
        measurement = measure([sys.executable, *contender.arguments(job)], timeout, environment)
        if measurement.error is None:
            try:
                outcome = contender.read_outcome(Path(folder), measurement.stdout)
                if result.outcome and outcome != result.outcome:
                    raise ValueError(f"{dict(outcome)} after {dict(result.outcome)} in an earlier round")
                result.outcome = outcome
                if contender.read_step is not None:
                    result.steps.append(contender.read_step(Path(folder), measurement))
            except (OSError, LookupError, ValueError) as error:
                measurement = replace(measurement, error=f"its result cannot be told: {error}")
        result.measurements.append(measurement)
        result.error = measurement.error
        if contender.without_step is not None and result.error is None:
            rest = measure([sys.executable, *contender.without_step(job)], timeout, environment)
            result.without_step.append(rest)
            result.error = rest.error and f"without the step: {rest.error}"
