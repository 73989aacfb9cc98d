"""The figures behind the charts, computed from a vocabulary, counts of its merges, and ids of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpeflow.counting.growth import GrowthPoint
from bpeflow.vocab import Vocab

#: Points of a curve. A line through more looks the same.
_POINTS = 120

Curve = tuple[list[float], list[float]]


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


def recorded_growth(growth: Sequence[GrowthPoint]) -> Curve:
    """Return numbers of pre-tokens, and how many distinct ones the corpus had up to there."""
    return [float(point.pretokens) for point in growth], [float(point.distinct) for point in growth]


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
