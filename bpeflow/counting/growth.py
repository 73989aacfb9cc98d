"""The growth of a corpus's vocabulary, measured while segments are counted, and what it will be at the end.

Distinct pre-tokens, and positions (their bytes, the size of the merge step), grow with the text by Heaps' law: as
K·size^β, with β near 0.6 for English and 0.9 for Chinese or Japanese text. Segments have most frequent pre-tokens in
common, so their numbers do not add up. A sample of each is united instead: the pre-tokens with the smallest hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bpeflow.config import ThinRare
from bpeflow.counting.counts import sum_exactly
from bpeflow.counting.kway import kway_sum
from bpeflow.counting.shards import Shard
from bpeflow.counting.thinning import Arrays, copy_pretokens, hashes_of_ends, is_selected, pretoken_hashes

#: The most pre-tokens in the sample. The numbers that it estimates have a standard error of 0.3 to 0.5 %; twice as many
#: take nearly twice the time.
SAMPLE = 1 << 17

#: Bytes of the smallest corpus whose growth is measured. A smaller one is counted before a warning could help.
MIN_CORPUS = 2_000_000_000

#: β is fitted to the points in this last part of the text. It falls slowly as text grows, so a larger part
#: overestimates the end; a smaller one follows every change of the text.
_RECENT = 1 / 8

#: Bytes of a shard that are read at a time.
_BUFFER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class GrowthPoint:
    """The numbers of distinct pre-tokens and of positions in a part of a corpus.

    Attributes:
        bytes: text in the part.
        pretokens: pre-tokens in it, including repetitions.
        distinct: distinct pre-tokens.
        positions: bytes of the distinct pre-tokens.
    """

    bytes: int
    pretokens: int
    distinct: int
    positions: int


@dataclass(frozen=True, kw_only=True)
class GrowthForecast:
    """The numbers of distinct pre-tokens and of positions that the whole corpus is likely to have.

    Attributes:
        done: bytes of input that were measured, by the sizes of files.
        total: bytes of the whole input.
        distinct: distinct pre-tokens at the end.
        positions: positions at the end.
        learned: positions that are left after `thin_rare`; all of them without it.
    """

    done: int
    total: int
    distinct: int
    positions: int
    learned: int


class DistinctSample:
    """A random sample of the distinct pre-tokens in several tables, from which their number is estimated.

    Adaptive sampling (Wegman; Flajolet, "On adaptive sampling", 1990): the sample has all pre-tokens whose hash is
    below a limit. The limit is halved whenever there are too many. As nothing but the hash decides, a pre-token that
    occurs in several tables is in the sample once or not at all, and the estimates are unbiased.

    A hash of the ends of pre-tokens decides, which takes little time, and another hash identifies them.
    """

    def __init__(self, most: int = SAMPLE) -> None:
        self._most = most
        self._one_in = 1
        self._new = 0
        #: Arrays of pre-tokens that are in the sample: both hashes, lengths and counts.
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, table: Arrays) -> None:
        """Add the pre-tokens of a table, in any order."""
        ends = hashes_of_ends(table.data, table.offsets)
        chosen = np.flatnonzero(is_selected(ends, self._one_in))
        data, offsets = copy_pretokens(table, chosen)
        counts = table.counts[chosen].astype(np.float64)  # as sums may not fit 64 bits
        self._parts.append((pretoken_hashes(data, offsets), ends[chosen], np.diff(offsets), counts))
        self._new += len(chosen)
        if self._new > self._most:
            self._unite()

    def estimate(self, thin: ThinRare | None = None) -> tuple[int, int, int]:
        """Return the numbers of distinct pre-tokens, of positions, and of positions after thinning."""
        if not self._parts:
            return 0, 0, 0
        self._unite()
        _, _, lengths, counts = self._parts[0]
        positions = left = int(lengths.sum())
        if thin is not None:
            left = round(np.where(counts < thin.below, lengths / thin.one_in, lengths).sum())
        return len(lengths) * self._one_in, positions * self._one_in, left * self._one_in

    def _unite(self) -> None:
        """Add up the counts of the same pre-tokens, and halve the limit until the sample is small enough."""
        hashes, ends, lengths, counts = (np.concatenate(arrays) for arrays in zip(*self._parts, strict=True))
        hashes, first, places = np.unique(hashes, return_index=True, return_inverse=True)
        sample = hashes, ends[first], lengths[first], np.bincount(places, counts, len(hashes))
        while len(sample[0]) > self._most:
            self._one_in *= 2
            kept = is_selected(sample[1], self._one_in)
            hashes, ends, lengths, counts = (array[kept] for array in sample)
            sample = hashes, ends, lengths, counts
        self._parts, self._new = [sample], 0


class Growth:
    """Measures the growth of the vocabulary over segments, and forecasts its end.

    Attributes:
        points: one after each segment that was measured.
    """

    def __init__(
        self, total: int, on_forecast: Callable[[GrowthForecast], None] | None = None, thin: ThinRare | None = None
    ) -> None:
        """Prepare to measure.

        Args:
            total: bytes of the whole input, by the sizes of files.
            on_forecast: called after each of these but the first.
            thin: the setting `thin_rare`, for the forecast.
        """
        self.points: list[GrowthPoint] = []
        self._total = total
        self._on_forecast = on_forecast
        self._thin = thin
        self._sample = DistinctSample()
        self._curve: list[tuple[int, ...]] = []  # bytes of input, and the three estimates
        self._segments = self._seen = self._bytes = self._done = self._pretokens = 0

    def add(self, shards: Sequence[Shard], size: int) -> None:
        """Add the counts of a segment, whose part of the input has `size` bytes by the sizes of files.

        Reading them takes a few percent of the time of counting, and points at equal distances add little. So only the
        segments 1, 2, 3, 4, 6, 8, 12, 16 … of a large corpus are measured, as if they were the whole text; never the
        last, after which the counts themselves are known.
        """
        self._segments += 1
        self._seen += size
        last, step = self._seen >= self._total, 1 << max(self._segments.bit_length() - 2, 0)
        if self._total < MIN_CORPUS or last or self._segments % step:
            return
        for shard in shards:
            with kway_sum([shard], "bytes", _BUFFER) as records:
                for block in records.blocks():
                    self._sample.add(block)
                    self._pretokens += sum_exactly(block.counts)
        self._bytes += sum(shard.statistics.bytes for shard in shards)
        self._done += size
        estimates = self._sample.estimate(self._thin)
        if not size or not estimates[0]:
            return
        self.points.append(
            GrowthPoint(bytes=self._bytes, pretokens=self._pretokens, distinct=estimates[0], positions=estimates[1])
        )
        self._curve.append((self._done, *estimates))
        if self._on_forecast is not None and len(self._curve) > 1:
            self._on_forecast(self._forecast())

    def _forecast(self) -> GrowthForecast:
        done, *series = zip(*self._curve, strict=True)
        distinct, positions, learned = (round(extrapolate(done, values, self._total)) for values in series)
        return GrowthForecast(
            done=self._done, total=self._total, distinct=distinct, positions=positions, learned=learned
        )


def extrapolate(sizes: Sequence[int], values: Sequence[int], size: int) -> float:
    """Return the value at `size` of the power law through the last point, with an exponent fitted to the latest points.

    >>> round(extrapolate([1, 2, 4], [100, 150, 225], 8))
    338

    Args:
        sizes: at least two sizes, ascending.
        values: the positive value at each of them.
        size: a larger size.
    """
    first = min(int(np.searchsorted(sizes, sizes[-1] * _RECENT)), len(sizes) - 2)
    exponent = float(np.polyfit(np.log(sizes[first:]), np.log(values[first:]), 1)[0])
    return float(values[-1] * (size / sizes[-1]) ** min(max(exponent, 0.0), 1.0))
