"""`RunData`: what the page shows of a run, read from its folder, and the curves computed from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpeflow.corpus.excerpts import TextSample, sample_corpus
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.look.usage import tokens_of_prefixes
from bpeflow.run_dir.layout import COUNTS_FILE, MONITOR_FILE, REPORT_FILE
from bpeflow.run_dir.run_files import RunReport, read_report
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

#: Samples of the monitor that are drawn. More look the same.
_DRAWN_SAMPLES = 200

#: Points of a curve. A line through more looks the same.
_POINTS = 120

Curve = tuple[list[float], list[float]]


class Encoded(NamedTuple):
    """A sample of a source, as the run's tokenizer encodes it."""

    source: str
    bytes: int
    tokens: int


@dataclass(frozen=True)
class RunData:
    """A run.

    Attributes:
        name: its name on the page.
        report: what ``run.json`` holds.
        tokenizer: the tokenizer; None if the run only counted.
        monitored: the samples of the monitor, or some of them if there are many; empty without a monitor.
        sample: a sample of text to measure on and to show.
        growth: the growth of distinct pre-tokens with the corpus; None if it is unknown.
    """

    name: str
    report: RunReport
    tokenizer: Tokenizer | None
    monitored: Sequence[Mapping[str, Any]] = ()
    sample: TextSample = field(default_factory=lambda: TextSample({}, ""))
    growth: Curve | None = None

    @cached_property
    def encoded(self) -> list[Encoded]:
        """The sample of each source, encoded."""
        return [
            Encoded(source, sum(len(text.encode()) for text in self.sample.texts[source]), len(ids))
            for source, ids in self._ids.items()
        ]

    @cached_property
    def bytes_per_token(self) -> Curve | None:
        """Bytes per token of the sample by size of the vocabulary; None without a tokenizer or a sample."""
        if self.tokenizer is None or not self.encoded:
            return None
        occurrences = np.bincount(np.concatenate([*self._ids.values()]), minlength=self.tokenizer.vocab_size)
        return bytes_per_token_curve(self.tokenizer, occurrences, sum(part.bytes for part in self.encoded))

    @cached_property
    def _ids(self) -> dict[str, NDArray[np.int64]]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return {}
        return {
            source: np.array([i for text in texts for i in tokenizer.encode(text, allowed_special=())], np.int64)
            for source, texts in self.sample.texts.items()
        }


def load_run(folder: Path, sample: Sequence[str] = ()) -> RunData:
    """Read a run folder.

    Args:
        folder: the folder of a finished run.
        sample: inputs to take the sample of text from; by default it is from the run's own corpus.

    Raises:
        ConfigError: the folder has no finished run, or `sample` has no text.
        FormatError: a file in the folder is damaged.
    """
    report = read_report(folder)
    if report is None:
        raise ConfigError(f"{folder} has no finished run: there is no {REPORT_FILE}")
    taken = sample_corpus(report.settings | ({"input": list(sample), "sources": []} if sample else {}))
    if sample:
        if not taken.texts:
            raise ConfigError(f"--sample {' '.join(sample)}: {taken.description}")
        taken = replace(taken, description=" ".join(sample))
    tokenizer = Tokenizer.load(folder) if report.learning is not None else None
    counts = folder / COUNTS_FILE
    growth = expected_growth(PretokenCounts.read(counts).counts) if counts.is_file() else None
    return RunData(folder.resolve().name, report, tokenizer, _read_samples(folder / MONITOR_FILE), taken, growth)


def _read_samples(path: Path) -> list[dict[str, Any]]:
    """Read the samples of the monitor. The times of a run that was resumed follow those of the run before."""
    if not path.is_file():
        return []
    try:
        samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise FormatError(f"{path}: not samples of the monitor: {error}") from error
    earlier = last = 0.0
    for sample in samples:
        if sample["elapsed"] + earlier < last:
            earlier = last
        sample["elapsed"] += earlier
        last = sample["elapsed"]
    return samples[:: max(-(-len(samples) // _DRAWN_SAMPLES), 1)]


# ---- curves ----


def expected_growth(counts: NDArray[np.int64]) -> Curve:
    """Return numbers of pre-tokens, and how many distinct ones that many of a corpus in random order would have.

    Of pre-tokens with c occurrences, a share p of the corpus has 1 - (1 - p)^c: the rarefaction curve of ecology.
    """
    times, words = np.unique(counts, return_counts=True)
    total = int(np.sum(times * words))
    sizes = _spread(1, total)
    distinct = [float(np.sum(words * -np.expm1(times * np.log1p(-size / total)))) for size in sizes[:-1]]
    return [float(size) for size in sizes], [*distinct, float(len(counts))]


class HeapsFit(NamedTuple):
    """Heaps' law fitted to counts: a text of n pre-tokens has about `factor` × n ** `exponent` distinct ones."""

    factor: float
    exponent: float

    def distinct(self, pretokens: float) -> float:
        """Return the number of distinct pre-tokens that it predicts."""
        return float(self.factor * pretokens**self.exponent)


def fit_heaps(growth: Curve) -> HeapsFit | None:
    """Fit Heaps' law to the growth of distinct pre-tokens, by least squares of the logarithms; None for few points.

    The first hundredth of the corpus is left out: there almost all pre-tokens are new.
    """
    points = [(seen, distinct) for seen, distinct in zip(*growth, strict=True) if seen >= growth[0][-1] / 100]
    if len(points) < 3:
        return None
    seen, distinct = np.log(np.array(points, np.float64)).T
    exponent, logarithm = np.polyfit(seen, distinct, 1)
    return HeapsFit(float(np.exp(logarithm)), float(exponent))


def merge_count_curve(counts: Sequence[int | None]) -> Curve:
    """Return some ranks, from 1, at equal distances on a logarithmic axis, and the counts of the merges.

    Merges whose count is unknown, or 0, are left out.
    """
    known = [rank for rank, count in enumerate(counts, 1) if count]
    ranks = [rank for rank in _spread(known[0], known[-1]) if counts[rank - 1]] if known else []
    return [float(rank) for rank in ranks], [float(counts[rank - 1] or 0) for rank in ranks]


def bytes_per_token_curve(tokenizer: Tokenizer, occurrences: NDArray[np.int64], size: int) -> Curve | None:
    """Return sizes of the vocabulary, and the bytes per token of a text with the vocabulary cut to each size.

    Args:
        tokenizer: the tokenizer.
        occurrences: how often the text has each id.
        size: bytes of the text.

    Returns:
        The curve; None if the vocabulary has no prefixes, see `tokens_of_prefixes`.
    """
    found = tokens_of_prefixes(tokenizer, occurrences)
    if found is None:
        return None
    entries, tokens = found
    sizes = _spread(int(entries[0]), int(entries[-1]))
    merges = np.searchsorted(entries, sizes, side="right") - 1
    return [float(entry) for entry in sizes], (size / np.maximum(tokens[merges], 1)).tolist()


def enough_size(curve: Curve) -> tuple[int, float] | None:
    """Return the size from which doubling the vocabulary saves less than 5 % of the tokens, and its bytes per token.

    None if it saves more even at the last doubling.
    """
    sizes, ratios = np.array(curve[0]), np.array(curve[1])
    halves = sizes[sizes >= 2 * sizes[0]] / 2
    for half in halves.tolist():
        here, doubled = np.interp([half, 2 * half], sizes, ratios)
        if 1 - here / doubled < 0.05:
            return round(half), float(here)
    return None


def token_lengths(vocab: Vocab) -> list[int]:
    """Return how many tokens have 1 byte, 2 bytes, and so on; special tokens are left out."""
    specials = set(vocab.special_tokens.values())
    lengths = [len(token) for i, token in enumerate(vocab.tokens) if i not in specials]
    return [int(number) for number in np.bincount(lengths, minlength=2)[1:]]


def _spread(first: int, last: int) -> list[int]:
    """Return integers from `first` to `last` at about equal ratios."""
    if last < first:
        return []
    return sorted({round(value) for value in np.geomspace(first, last, _POINTS).tolist()})
