"""Measure the contenders in rounds, in rotating order, so that a slow minute of the computer affects all of them."""

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
    """The measurements of a contender and its outcome.

    Attributes:
        contender: the contender.
        measurements: one per round, in order.
        steps: the seconds of the step in each round, if the contender reports them.
        without_step: the measurements of the process that does everything but the step (see `Contender`).
        outcome: the contender's result.
        error: why the contender failed, or None if it did not.
    """

    contender: Contender
    measurements: list[Measurement] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    without_step: list[Measurement] = field(default_factory=list)
    outcome: Outcome = field(default_factory=dict)
    error: str | None = None

    @property
    def seconds(self) -> list[float]:
        """The wall times of the successful rounds."""
        return [measurement.seconds for measurement in self.measurements if measurement.error is None]

    @property
    def median_seconds(self) -> float | None:
        """The median wall time; None if the contender failed in any round."""
        return None if self.error or not self.seconds else median(self.seconds)

    @property
    def step_seconds(self) -> float | None:
        """The median of the step's seconds, or the difference of two medians; None if neither is known."""
        if self.median_seconds is None:
            return None
        if self.without_step:
            return self.median_seconds - median(measurement.seconds for measurement in self.without_step)
        return median(self.steps) if self.steps else None


def turns(contenders: Sequence[Contender], rounds: int) -> Iterator[tuple[int, Contender]]:
    """Yield (round, contender) for all contenders in each round, starting each round with the next contender.

    The order of three contenders is A B C, B C A, C A B, A B C, …
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
    """Measure every contender `rounds` times. A contender that failed is not measured again."""
    results = {contender.name: Result(contender) for contender in contenders}
    for number, contender in turns(contenders, rounds):
        result = results[contender.name]
        if result.error is None:
            _take_turn(result, job, timeout)
            progress(number, contender, result.measurements[-1])
    return list(results.values())


def _take_turn(result: Result, job: Job, timeout: float) -> None:
    contender = result.contender
    # The peers in Rust are built on Rayon, which reads its number of threads from the environment.
    environment = {"RAYON_NUM_THREADS": str(job.processes), "TOKENIZERS_PARALLELISM": "true", **contender.environment}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        job = replace(job, out_dir=Path(folder))
        measurement = measure([sys.executable, *contender.arguments(job)], timeout, environment)
        if measurement.error is None:
            try:
                outcome = contender.read_outcome(Path(folder), measurement.stdout)
                if result.outcome and outcome != result.outcome:
                    raise ValueError(f"{dict(outcome)}, but {dict(result.outcome)} in an earlier round")
                result.outcome = outcome
                if contender.read_step is not None:
                    result.steps.append(contender.read_step(Path(folder), measurement))
            except (OSError, LookupError, ValueError) as error:
                measurement = replace(measurement, error=f"cannot read its result: {error}")
        result.measurements.append(measurement)
        result.error = measurement.error
        if contender.without_step is not None and result.error is None:
            rest = measure([sys.executable, *contender.without_step(job)], timeout, environment)
            result.without_step.append(rest)
            result.error = rest.error and f"without the step: {rest.error}"
