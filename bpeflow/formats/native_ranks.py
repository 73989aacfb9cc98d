"""Reading of ranks and of merges, and recovery of merges from ranks, natively.

Source: ``ext/encode/ranks.hpp`` and ``ext/encode/merge_lines.hpp``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.library import Signature, check_status, load_library
from bpeflow._util.packed import PackedBytes

_SIGNATURES: dict[str, Signature] = {
    # Other text is left to the caller (None).
    "bpeflow_read_ranks": (c_int, [c_char_p, c_uint64, c_void_p, c_void_p, c_void_p, c_uint64], None),
    "bpeflow_read_merges": (c_int, [c_char_p, c_uint64, c_char_p, c_uint64, c_uint32, c_void_p, c_uint64], None),
    "bpeflow_recover_merges": (c_int, [c_char_p, c_void_p, c_uint32, c_void_p, POINTER(c_uint64)], check_status),
}


@cache
def _library() -> ctypes.CDLL:
    return load_library("encode", _SIGNATURES)


def read_natively(content: bytes) -> tuple[PackedBytes, NDArray[np.int64]] | None:
    """Read tiktoken's format.

    Returns:
        The tokens and their ranks; None if a line has another form, or two have equal tokens.

    Raises:
        NativeUnavailableError: the library is not available.
    """
    lines = content.count(b"\n")
    data, offsets, ranks = np.empty(len(content), np.uint8), np.empty(lines + 1, np.int64), np.empty(lines, np.int64)
    arrays = (data.ctypes.data, offsets.ctypes.data, ranks.ctypes.data)
    if _library().bpeflow_read_ranks(content, len(content), *arrays, lines) != 0:
        return None
    return PackedBytes(data[: offsets[-1]].tobytes(), offsets), ranks


def read_merges_natively(lines: str, ids: Mapping[str, int]) -> NDArray[np.uint32] | None:
    """Implement `printable.find_merge_ids`. Raises `NativeUnavailableError` if the library is not available."""
    library = _library()
    try:
        forms, text = "\n".join([*ids, ""]).encode(), lines.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None
    merges = np.empty((lines.count("\n"), 3), np.uint32)
    arguments = (text, len(text), forms, len(forms), len(ids), merges.ctypes.data, len(merges))
    if library.bpeflow_read_merges(*arguments) != 0:
        return None
    found: NDArray[np.uint32] = np.fromiter(ids.values(), np.uint32, len(ids))[merges]
    return found


def recover_natively(tokens: PackedBytes) -> NDArray[np.uint32]:
    """Implement `ranks.recover_merge_ids`. Raises `NativeUnavailableError` if the library is not available."""
    library = _library()
    merges = np.empty((len(tokens), 3), np.uint32)
    count = c_uint64()
    library.bpeflow_recover_merges(
        tokens.data, tokens.offsets.ctypes.data, len(tokens), merges.ctypes.data, byref(count)
    )
    recovered: NDArray[np.uint32] = merges[: count.value].copy()
    return recovered
