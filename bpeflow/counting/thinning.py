"""Thinning: keep one in m of the rare pre-tokens, with their counts times m, for a merge step that needs less memory.

The count of every pre-token, and so of every pair, is what it was on average over all hashes: one in m is kept, and
counts for m. So thinning is unbiased, unlike leaving out rare pre-tokens, which in text without spaces leaves out whole
languages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bpeflow.counting.pretoken_hash import is_selected, pretoken_hashes
from bpeflow.counting.shards import MAX_COUNT
from bpeflow.errors import CountOverflowError

#: Pre-tokens that are selected or copied at a time, to bound the memory of temporary arrays.
_STEP = 1 << 17

#: Bytes by which most pre-tokens are ordered, all at once. The others are compared one by one, in fifty times the time.
_BEGINNING = 32


@dataclass(frozen=True, kw_only=True)
class Thinned:
    """The effect of thinning.

    Attributes:
        pretokens: distinct pre-tokens that were counted.
        positions: their bytes.
        kept_pretokens: distinct pre-tokens that merges were learned from.
        kept_positions: their bytes.
    """

    pretokens: int
    positions: int
    kept_pretokens: int
    kept_positions: int


class Arrays(NamedTuple):
    """The arrays of `PretokenCounts`."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def token(self, index: int) -> bytes:
        """Return the bytes of a pre-token."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()


def thin(table: Arrays, below: int, one_in: int) -> Arrays:
    """Return a table in which counts below `below` are thinned, in canonical order.

    Raises:
        CountOverflowError: a multiplied count does not fit 64 bits.
    """
    frequent = len(table.counts) - int(np.searchsorted(table.counts[::-1], below))
    kept = np.concatenate([np.empty(0, np.int64), *_selected(table, frequent, one_in)])
    if len(kept) and int(table.counts[kept[0]]) > MAX_COUNT // one_in:
        raise CountOverflowError(
            f"thin_rare: the count of pre-token {table.token(int(kept[0]))!r} times {one_in} does not fit 64 bits"
        )
    counts = table.counts[kept] * one_in
    places = _places(table, frequent, kept, counts)
    data, offsets = copy_pretokens(table, np.insert(np.arange(frequent), places, kept))
    return Arrays(data, offsets, np.insert(table.counts[:frequent], places, counts))


def _selected(table: Arrays, first: int, one_in: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the indices of the pre-tokens from `first` on that are kept."""
    for begin in range(first, len(table.counts), _STEP):
        hashes = pretoken_hashes(table.data, table.offsets[begin : begin + _STEP + 1])
        yield begin + np.flatnonzero(is_selected(hashes, one_in))


def _places(
    table: Arrays, frequent: int, kept: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return before which of the first `frequent` pre-tokens each of `kept` belongs, now that it has another count.

    Both are in canonical order, so counts alone decide, except among pre-tokens that now have the same count. These are
    ordered by bytes, of which those at the beginning decide nearly always.
    """
    of_frequent, of_kept = -table.counts[:frequent], -counts  # ascending
    places = np.searchsorted(of_frequent, of_kept)
    for count in np.unique(of_kept).tolist():
        first, last = (int(np.searchsorted(of_frequent, count, side)) for side in ("left", "right"))
        if first == last:
            continue
        same = slice(*(int(np.searchsorted(of_kept, count, side)) for side in ("left", "right")))
        tied, beginnings = kept[same], _beginnings(table, kept[same])
        searched = _beginnings(table, np.arange(first, last))
        before, until = (np.searchsorted(beginnings, searched, side) for side in ("left", "right"))
        for number in np.flatnonzero(before < until).tolist():
            token = table.token(first + number)
            before[number] = bisect_left(tied, token, before[number], until[number], key=table.token)
        places[same] = first + np.searchsorted(before, np.arange(len(tied)), side="right")
    return places


def _beginnings(table: Arrays, words: npt.NDArray[np.int64]) -> npt.NDArray[np.bytes_]:
    """Return the first `_BEGINNING` bytes of these pre-tokens, padded with zeros."""
    starts, ends = table.offsets[words], table.offsets[words + 1]
    columns = np.zeros((len(words), _BEGINNING), dtype=np.uint8)
    for place in range(_BEGINNING):
        longer = np.flatnonzero(starts + place < ends)
        columns[longer, place] = table.data[starts[longer] + place]
    return columns.view(f"S{_BEGINNING}").ravel()


def copy_pretokens(table: Arrays, words: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes and the offsets of these pre-tokens, in this order."""
    starts = table.offsets[words]
    lengths = table.offsets[words + 1] - starts
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(offsets[-1], dtype=np.uint8)
    for begin in range(0, len(words), _STEP):
        part = slice(begin, min(begin + _STEP, len(words)))
        first, last = offsets[part.start], offsets[part.stop]
        moved = np.repeat(starts[part] - offsets[part], lengths[part])
        data[first:last] = table.data[moved + np.arange(first, last)]
    return data, offsets
