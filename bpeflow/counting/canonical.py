"""Canonical order, count descending and then bytes ascending: tables or pre-tokens are added up and sorted.

Thinning is done on the way: of rare pre-tokens one in m is kept, with its count times m, for a merge step that needs
less memory. The count of every pre-token, and so of every pair, is what it was on average over all hashes. So thinning
is unbiased, unlike leaving out rare pre-tokens, which in text without spaces leaves out whole languages. The hashes of
pre-tokens never change, so that the selection depends on nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint64, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.native import Handle, load_library
from bpeflow._util.packed import PackedBytes
from bpeflow.counting.shards import MAX_COUNT, hash_of
from bpeflow.errors import CountOverflowError, NativeUnavailableError
from bpeflow.flow import map_in_threads

#: `data`, `offsets` and `counts` of `PretokenCounts`.
Arrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]


def canonical(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.int64], below: int = 1, one_in: int = 1
) -> Arrays:
    """Return the arrays of distinct pre-tokens in canonical order, with the counts of equal ones added up.

    Of pre-tokens counted less than `below`, one in `one_in` is kept, with `one_in` times its count. Raises
    `CountOverflowError` if a count does not fit 64 bits.
    """
    try:
        library = load_library("count")
    except NativeUnavailableError:
        return _by_definition(data, offsets, counts, below, one_in)
    table = Handle(library, "table", None, None, 1)
    columns = [np.ascontiguousarray(array).ctypes for array in (data, offsets, counts)]
    library.bpeflow_table_add(table, *(column.data for column in columns), len(counts), below, one_in)
    return sum_of_tables([table], 1)


def _by_definition(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.int64], below: int, one_in: int
) -> Arrays:
    packed, total = data.tobytes(), Counter[bytes]()
    for (start, end), count in zip(pairwise(offsets.tolist()), counts.tolist(), strict=True):
        token = packed[start:end]
        if count >= below:
            total[token] += count
        elif hash_of(token) <= (2**64 - 1) // one_in:
            total[token] += count * one_in
    if max(total.values(), default=0) > MAX_COUNT:
        raise CountOverflowError("a count does not fit 64 bits")
    ordered = dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
    tokens = PackedBytes.of(ordered)
    return np.frombuffer(tokens.data, np.uint8), tokens.offsets, np.array([*ordered.values()], np.int64)


def sum_of_tables(tables: Sequence[Handle], threads: int) -> Arrays:
    """Return the sum of native tables, which are freed. Raises `CountOverflowError`."""
    library = load_library("count")
    handles = (c_void_p * len(tables))(*(table.value for table in tables))
    total = Handle(library, "sum", handles, len(handles), threads)

    def in_threads(step: Callable[..., int], *arrays: NDArray[Any]) -> None:
        addresses = [array.ctypes.data for array in arrays]
        list(map_in_threads(lambda _: step(total, *addresses), range(threads), threads))

    in_threads(library.bpeflow_sum_add_up)
    in_threads(library.bpeflow_sum_divide)
    tokens, size = c_uint64(), c_uint64()
    library.bpeflow_sum_size(total, byref(tokens), byref(size))
    data, offsets = np.empty(size.value, np.uint8), np.zeros(tokens.value + 1, np.int64)
    arrays = data, offsets, np.empty(tokens.value, np.int64)
    in_threads(library.bpeflow_sum_distribute, *arrays)
    # Here and not in finalizers: this takes a while, and Ctrl-C in a finalizer is lost.
    for table in tables:
        table.free()
    in_threads(library.bpeflow_sum_sort, *arrays)
    total.free()
    return arrays
