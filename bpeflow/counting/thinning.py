"""Thinning: keep one in m of the rare pre-tokens, with their counts times m, for a merge step that needs less memory.

The count of every pre-token, and so of every pair, is what it was on average over all hashes: one in m is kept, and
counts for m. So thinning is unbiased, unlike leaving out rare pre-tokens, which in text without spaces leaves out whole
languages. The hashes of pre-tokens never change, so that such a selection depends on nothing else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpeflow._util import native
from bpeflow._util.packed import take_strings
from bpeflow.counting.shards import MAX_COUNT, hash_of
from bpeflow.errors import CountOverflowError, NativeUnavailableError

if TYPE_CHECKING:
    from bpeflow.backends.base import WordCounts


def pretoken_hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each pre-token, `data[offsets[i]:offsets[i + 1]]`, as `hash_of` does."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    columns = [np.ascontiguousarray(array) for array in (data, offsets)]
    addresses = [array.ctypes.data for array in columns]
    try:
        native.load_library("count").bpeflow_hashes(*addresses, len(hashes), hashes.ctypes.data)
    except NativeUnavailableError:
        hashes[:] = [hash_of(data[start:end].tobytes()) for start, end in pairwise(offsets.tolist())]
    return hashes


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
