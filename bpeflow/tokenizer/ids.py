"""Ids as they come from users, checked and made into the arrays that encoders decode."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import InputTypeError, UnknownTokenError
from bpeflow.tokenizer.encoder import unknown_token

#: Ids to decode.
Ids = Sequence[int] | NDArray[Any]


def checked_ids(ids: Ids, tokens: int) -> NDArray[Any]:
    """Ids of a vocabulary of `tokens` ids as a contiguous array of uint16 or uint32, in one dimension.

    Raises `InputTypeError` for what is no id, and `UnknownTokenError` for what uint32 cannot hold; other unknown ids
    are for the encoder to find.
    """
    if isinstance(ids, np.ndarray):
        return _checked_array(ids, tokens)
    if isinstance(ids, (str, bytes, bytearray)):
        raise InputTypeError(f"ids to decode are whole numbers, not {type(ids).__name__}")
    try:
        return np.frombuffer(array("I", ids), np.uint32)
    except (TypeError, OverflowError):
        raise _bad_id(ids, tokens) from None


def _checked_array(ids: NDArray[Any], tokens: int) -> NDArray[Any]:
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
        raise InputTypeError(f"ids to decode are whole numbers in one dimension, not {ids.dtype} of shape {ids.shape}")
    if ids.dtype not in (np.uint16, np.uint32):
        wrong = np.flatnonzero((ids < 0) | (ids >= tokens))
        if len(wrong):
            raise unknown_token(int(ids[wrong[0]]), int(wrong[0]), tokens)
        ids = ids.astype(np.uint32)
    return np.ascontiguousarray(ids)


def _bad_id(ids: Any, tokens: int) -> InputTypeError | UnknownTokenError:
    """Say which of `ids` is not even an unsigned number of 32 bits."""
    try:
        numbers = enumerate(ids)
    except TypeError:
        return InputTypeError(f"ids to decode are a sequence of whole numbers, not {type(ids).__name__}")
    for index, token_id in numbers:
        if not hasattr(token_id, "__index__"):
            return InputTypeError(f"{token_id!r} at index {index} is no id, which is a whole number")
        if not 0 <= token_id < 1 << 32:
            return unknown_token(int(token_id), index, tokens)
    return InputTypeError("ids to decode are a sequence of whole numbers")
