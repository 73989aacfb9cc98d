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

from bpeflow.corpus.excerpts import SAMPLE_BYTES, TextSample, sample_corpus
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, FormatError
from bpeflow.run_dir.layout import COUNTS_FILE, MONITOR_FILE, REPORT_FILE
from bpeflow.run_dir.run_report import RunReport, read_report
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

#: Samples of the monitor that are drawn. More look the same.
_DRAWN_SAMPLES = 200

#: Points of a curve. A line through more looks the same.
_POINTS = 120

Curve = tuple[list[float], list[float]]


class Encoded(NamedTuple):
    """A sample of a source, as its tokenizer encodes it."""

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
        merge_counts: the count of each merge when it was learned; None where it is unknown.
        monitored: the samples of the monitor, or some of them if there are many; empty without a monitor.
        sample: a sample of text to measure on and to show.
        growth: the growth of distinct pre-tokens with the corpus; None if it is unknown.
    """

    name: str
    report: RunReport
    tokenizer: Tokenizer | None
    merge_counts: Sequence[int | None] = ()
    monitored: Sequence[Mapping[str, Any]] = ()
    sample: TextSample = field(default_factory=lambda: TextSample({}, ""))
    growth: Curve | None = None

    @cached_property
    def encoded(self) -> list[Encoded]:
        """The sample of each source, encoded."""
        return [
            Encoded(source, sum(len(text.encode()) for text in texts), len(self._ids[source]))
            for source, texts in self.sample.texts.items()
            if source in self._ids
        ]

    @cached_property
    def bytes_per_token(self) -> Curve | None:
        """Bytes per token of the sample by size of the vocabulary; None without a tokenizer or a sample."""
        if self.tokenizer is None or not self.encoded:
            return None
        ids = np.concatenate([*self._ids.values()])
        return bytes_per_token_curve(self.tokenizer.vocab, ids, sum(part.bytes for part in self.encoded))

    @cached_property
    def _ids(self) -> dict[str, NDArray[np.int64]]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return {}
        return {
            source: np.array([i for text in texts for i in tokenizer.encode(text, allowed_special=())], np.int64)
            for source, texts in self.sample.texts.items()
        }


def load_runs(folders: Mapping[str, Path], sample: Sequence[str] = ()) -> list[RunData]:
    """Read run folders, given by the runs' names on the page.

    Args:
        folders: the folders of finished runs.
        sample: inputs to take the sample of text from; by default it is from the runs' own corpora. It is the same for
            all runs.

    Raises:
        ConfigError: a folder has no finished run, or `sample` has no text.
        FormatError: a file in a folder is damaged.
    """
    reports: dict[str, RunReport] = {}
    for name, folder in folders.items():
        report = read_report(folder)
        if report is None:
            raise ConfigError(f"{folder} has no finished run: there is no {REPORT_FILE}")
        reports[name] = report
    taken = _take_sample(reports, sample)
    runs = []
    for name, folder in folders.items():
        tokenizer = Tokenizer.load(folder) if reports[name].learning is not None else None
        monitored = _read_samples(folder / MONITOR_FILE)
        path = folder / COUNTS_FILE
        growth = expected_growth(PretokenCounts.read(path).counts) if path.is_file() else None
        counts = (tokenizer and tokenizer.vocab.merge_counts) or ()
        runs.append(RunData(name, reports[name], tokenizer, counts, monitored, taken, growth))
    return runs


def _take_sample(reports: Mapping[str, RunReport], sample: Sequence[str]) -> TextSample:
    """Take one sample for all runs: of the inputs given, or of the corpus of each run, if they differ."""
    settings = {name: report.settings for name, report in reports.items()}
    if sample:
        first = next(iter(settings.values()))
        given = sample_corpus(first | {"input": list(sample), "sources": []})
        if not given.texts:
            raise ConfigError(f"--sample {' '.join(sample)}: {given.description}")
        return replace(given, description=" ".join(sample))
    corpora = {
        (str(values.get("input")), str(values.get("sources"))): name for name, values in [*settings.items()][::-1]
    }
    names = [name for name in settings if name in corpora.values()]
    samples = {name: sample_corpus(settings[name], SAMPLE_BYTES // len(names)) for name in names}
    if len(names) == 1:
        return samples[names[0]]
    texts = {f"{name}: {source}": texts for name in names for source, texts in samples[name].texts.items()}
    return TextSample(texts, f"a sample of the corpora of {', '.join(names)}, which they were trained on")


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


class HeapsFit(NamedTuple):
    """Heaps' law fitted to counts: a text of n pre-tokens has about `factor` × n ** `exponent` distinct ones."""

    factor: float
    exponent: float

    def distinct(self, pretokens: float) -> float:
        """Return the number of distinct pre-tokens that it predicts."""
        return float(self.factor * pretokens**self.exponent)


def expected_growth(counts: NDArray[np.int64]) -> Curve:
    """Return numbers of pre-tokens, and how many distinct ones that many of a corpus in random order would have.

    Of pre-tokens with c occurrences, a share p of the corpus has 1 - (1 - p)^c: the rarefaction curve of ecology.
    """
    times, words = np.unique(counts, return_counts=True)
    total = int(np.sum(times * words))
    sizes = _spread(1, total)
    distinct = [float(np.sum(words * -np.expm1(times * np.log1p(-size / total)))) for size in sizes[:-1]]
    return [float(size) for size in sizes], [*distinct, float(len(counts))]


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


def bytes_per_token_curve(vocab: Vocab, ids: NDArray[np.int64], size: int) -> Curve:
    """Return sizes of the vocabulary, and the bytes per token of a text with the vocabulary cut to each size.

    A prefix of a vocabulary encodes a text as the whole one does, without the later merges. So the ids that the whole
    one makes are enough: each token whose merge is left out is split into the two that it was made of.

    This is exact where each merge makes a token of its own and text is encoded by merging alone. With `whole_tokens`,
    or where several merges make one token (of which the first counts here), it is close.

    Args:
        vocab: the vocabulary.
        ids: the text, encoded with it.
        size: bytes of the text.
    """
    occurrences = np.bincount(ids, minlength=len(vocab)).tolist()
    tokens = [sum(occurrences)]
    sizes = [len(vocab)]
    seen = set()
    first_merges = []
    for left, right, token in vocab.merge_ids.tolist():
        if token not in seen:
            seen.add(token)
            first_merges.append((left, right, token))
    for left, right, token in reversed(first_merges):
        times = occurrences[token]
        occurrences[left] += times
        occurrences[right] += times
        tokens.append(tokens[-1] + times)
        sizes.append(sizes[-1] - 1)
    sizes.reverse()
    tokens.reverse()
    chosen = [place - sizes[0] for place in _spread(sizes[0], sizes[-1])]
    return [float(sizes[i]) for i in chosen], [size / max(tokens[i], 1) for i in chosen]


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
