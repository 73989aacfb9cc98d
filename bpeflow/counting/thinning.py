"""Thinning: keep one in m of the rare pre-tokens, with their counts times m, for a merge step that needs less memory.

The count of every pre-token, and so of every pair, is what it was on average over all hashes: one in m is kept, and
counts for m. So thinning is unbiased, unlike leaving out rare pre-tokens, which in text without spaces leaves out whole
languages. The hashes of pre-tokens never change, so that such a selection depends on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpeflow._util import native
from bpeflow._util.packed import take_strings
from bpeflow.counting.shards import MAX_COUNT
from bpeflow.errors import CountOverflowError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.backends.base import WordCounts

#: The base of the polynomial: 2^64 divided by the golden ratio, an odd number with well-mixed bits.
BASE = 0x9E3779B97F4A7C15

#: Bytes that are hashed at a time. Their temporary arrays, 32 bytes for each, fit into the L2 cache.
_BLOCK = 1 << 15


def pretoken_hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each pre-token, evenly distributed over 64 bits.

    With the bytes b0, b1, … of a pre-token, it is the polynomial (b0 + 1) + (b1 + 1) B + (b2 + 1) B² + … modulo 2^64,
    with B = `BASE`, whose bits are then mixed by the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
    pseudorandom number generators", 2014).

    As B has an inverse modulo 2^64, the polynomials of all pre-tokens in a block are differences of one running sum:
    `(sum[end] - sum[start]) / B^start`. This takes a few operations on arrays, whatever the lengths.

    Args:
        data: bytes of pre-tokens.
        offsets: pre-token `i` is `data[offsets[i]:offsets[i + 1]]`.
    """
    longest = int(np.diff(offsets).max(initial=0))
    powers, inverses = (_powers(base, max(_BLOCK, longest) + 1) for base in (BASE, pow(BASE, -1, 2**64)))
    sums = np.zeros(len(powers), dtype=np.uint64)
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    begin = 0
    while begin < len(hashes):
        first = offsets[begin]
        end = max(int(np.searchsorted(offsets, first + _BLOCK, side="right")) - 1, begin + 1)
        places = offsets[begin : end + 1] - first
        size = int(places[-1])
        terms = (data[first : first + size].astype(np.uint64) + np.uint64(1)) * powers[:size]
        np.cumsum(terms, out=sums[1 : size + 1])
        starts, ends = places[:-1], places[1:]
        hashes[begin:end] = (sums[ends] - sums[starts]) * inverses[starts]
        begin = end
    return _mixed(hashes)


def _powers(base: int, number: int) -> NDArray[np.uint64]:
    """Return the powers of `base` modulo 2^64, from the 0th on."""
    factors = np.full(number, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number in place, one to one, so that its upper bits depend on all of them."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)
    hashes ^= hashes >> np.uint64(31)
    return hashes


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


def thin(table: WordCounts, below: int, one_in: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the arrays of a table in which counts below `below` are thinned, in canonical order.

    Raises:
        CountOverflowError: a multiplied count does not fit 64 bits.
    """
    frequent = len(table.counts) - int(np.searchsorted(table.counts[::-1], below))
    smallest = pretoken_hashes(table.data, table.offsets[frequent:]) <= np.uint64((2**64 - 1) // one_in)
    kept = np.concatenate([np.arange(frequent), frequent + np.flatnonzero(smallest)])
    counts = table.counts[kept]
    rare = counts[frequent:]
    if len(rare) and int(rare[0]) > MAX_COUNT // one_in:
        token = table.data[slice(*table.offsets[kept[frequent] :][:2])].tobytes()
        raise CountOverflowError(f"thin_rare: the count of pre-token {token!r} times {one_in} does not fit 64 bits")
    rare *= one_in
    order = canonical_order(table.data, table.offsets[kept], table.offsets[kept + 1], counts)
    return *take_strings(table.data, table.offsets, kept[order]), counts[order]


def canonical_order(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the indices of pre-tokens in canonical order. Pre-token `i` is `data[starts[i]:ends[i]]`."""
    order = np.empty(len(counts), dtype=np.int64)
    arrays = [np.ascontiguousarray(array) for array in (data, starts, ends, counts)]
    columns = [array.ctypes.data for array in arrays]
    try:
        native.load_library("count").bpeflow_canonical_order(*columns, len(counts), order.ctypes.data)
    except NativeUnavailableError:
        tokens = [data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        order[:] = sorted(range(len(counts)), key=lambda index: (-counts[index], tokens[index]))
    return order
