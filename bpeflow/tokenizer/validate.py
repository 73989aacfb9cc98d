"""Validation of users' arguments: text, ids, dtypes, vocabularies and batches.

Each function returns the argument in the form that the rest of the package works with, or raises an error that says
what is wrong and where.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from mmap import mmap
from operator import index as as_integer
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bpeflow._util.text import short_repr
from bpeflow.errors import (
    ConfigError,
    FormatError,
    InputTypeError,
    InvalidTextError,
    PatternTimeoutError,
    SpecialTokenError,
    UnknownTokenError,
)
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.tokenizer.encoder import unknown_token_error
from bpeflow.vocab import MOST_GAPS, Merge, Vocab, as_merges

#: Ids to decode.
Ids = Iterable[int] | NDArray[Any]

_BYTES = (bytes, bytearray, memoryview, mmap)

#: Iterables that are not a sequence of texts, or of lists of ids: their items are in no order, or not what is meant.
NO_BATCH = (str, bytes, set, frozenset, Mapping)

Item = TypeVar("Item")
Result = TypeVar("Result")


# ---- text ----


def to_utf8(text: str, start: int = 0, taken: str = "a str") -> bytes:
    """Return a text as UTF-8.

    Args:
        text: the text.
        start: the position of `text` in a larger text, for the error message.
        taken: what the caller takes, for the error message.

    Raises:
        InputTypeError: `text` is not a `str`.
        InvalidTextError: `text` has a lone surrogate.
    """
    if not isinstance(text, str):
        raise InputTypeError(f"text to encode must be {taken}, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {start + error.start}, which "
            "UTF-8 cannot represent; repair the text first, for example with text.encode('utf-16', 'surrogatepass')"
            ".decode('utf-16', 'replace')"
        ) from None


def as_utf8(text: str | Utf8 | NDArray[np.uint8]) -> Utf8:
    """Return a `str` as UTF-8, and bytes as they are. The encoders check bytes. Raises as `to_utf8` does."""
    if isinstance(text, np.ndarray) and text.dtype == np.uint8:
        text = text.data
    if isinstance(text, memoryview):
        if not text.c_contiguous:
            raise InputTypeError("the memory to encode is not contiguous; pass a copy, bytes(memory)")
        return text.cast("B")
    return text if isinstance(text, _BYTES) else to_utf8(text, taken="a str, or bytes in UTF-8")  # type: ignore[arg-type]


# ---- ids ----


def validate_ids(ids: Ids, tokens: int) -> NDArray[Any]:
    """Return ids as a one-dimensional, contiguous array of uint16 or uint32.

    Args:
        ids: ids of a vocabulary.
        tokens: the number of ids in the vocabulary.

    Raises:
        InputTypeError: `ids` is not a sequence of integers.
        UnknownTokenError: an id does not fit uint32. Finding other unknown ids is left to the encoder.
    """
    if isinstance(ids, (str, bytes, bytearray, set, frozenset, dict)):
        raise InputTypeError(f"ids to decode must be a sequence of integers, not {type(ids).__name__}")
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
        try:
            return np.frombuffer(array("I", ids), np.uint32)
        except (TypeError, OverflowError):
            raise _invalid_id_error(ids, tokens) from None
    if ids.dtype not in (np.uint16, np.uint32):
        if ((ids < 0) | (ids >= 1 << 32)).any():
            raise _invalid_id_error(ids, tokens)
        ids = ids.astype(np.uint32)
    return np.ascontiguousarray(ids)


def _invalid_id_error(ids: Any, tokens: int) -> InputTypeError | UnknownTokenError:
    """Return the error for the first of `ids` that is not an unsigned 32-bit integer."""
    if not isinstance(ids, Iterable) or not getattr(ids, "ndim", 1):
        hint = "; for a single sequence use decode([…])" if is_integer(ids) else ""
        return InputTypeError(f"ids to decode must be a sequence of integers, not {type(ids).__name__}{hint}")
    for index, token_id in enumerate(ids):
        try:
            value = as_integer(token_id)
        except TypeError:  # a row of a tensor has __index__, too, and raises it
            is_row = isinstance(token_id, list | tuple) or bool(getattr(token_id, "ndim", 0))
            hint = "; decode_batch decodes several sequences" if is_row else ""
            return InputTypeError(f"{short_repr(token_id)} at index {index} is not a token id (an integer){hint}")
        if not 0 <= value < 1 << 32:
            return unknown_token_error(value, index, tokens)
    return InputTypeError("ids to decode must be a sequence of integers")


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, also one of numpy's, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def validate_dtype(dtype: DTypeLike, vocab_size: int) -> np.dtype[Any]:
    """Return the dtype of an array of ids. Raises `ConfigError` if it is neither uint16 nor uint32, or too small."""
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise ConfigError(f"dtype is {dtype!r}; it must be uint16 or uint32") from None
    if wanted not in (np.uint16, np.uint32):
        raise ConfigError(f"dtype is {wanted}; it must be uint16 or uint32")
    if wanted.itemsize < smallest_dtype(vocab_size).itemsize:
        raise ConfigError(f"dtype {wanted} cannot hold the ids of a vocabulary of {vocab_size:,} tokens; use uint32")
    return wanted


def smallest_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return uint16 if it can hold every id of a vocabulary, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


# ---- vocabularies ----


def make_vocab(vocab: Mapping[int, bytes] | Vocab, merges: Iterable[Merge]) -> Vocab:
    """Return a `Vocab` made of a vocabulary and merges.

    Args:
        vocab: the bytes of each id; or a `Vocab`, whose merges are replaced and whose special tokens are kept.
        merges: pairs of bytes by rank.

    Raises:
        InputTypeError: an argument, an id, a token or a merge has a wrong type.
        FormatError: an id is negative or far larger than the number of tokens.
    """
    if not isinstance(vocab, Mapping):  # a `Vocab` is one
        raise InputTypeError(f"vocab must be a mapping from id to bytes, not {type(vocab).__name__}")
    if isinstance(vocab, Vocab):
        pairs = as_merges(merges)
        return vocab if pairs == vocab.merges else vocab.replaced(merges=pairs, merge_counts=None)
    for token_id in vocab if not {*map(type, vocab)} <= {int} else ():
        if not is_integer(token_id):
            raise InputTypeError(f"the id {token_id!r} in the vocabulary is {type(token_id).__name__}, not int")
    low, high, limit = min(vocab, default=0), max(vocab, default=-1), len(vocab) + MOST_GAPS
    if low < 0 or high >= limit:
        raise FormatError(
            f"the vocabulary has the id {low if low < 0 else high}; ids of {len(vocab):,} tokens must be from 0 to "
            f"{limit - 1}"
        )
    return Vocab([vocab.get(token_id, b"") for token_id in range(high + 1)], {}, merges)


# ---- batches ----


def list_of(batch: Iterable[Item]) -> list[Item]:
    """Return a batch as a list of its own. Raises `InputTypeError` for a `str`, or if it has no items or no order."""
    if isinstance(batch, NO_BATCH) or not isinstance(batch, Iterable) or not getattr(batch, "ndim", 1):
        hint = "; encode and decode take a single one" if isinstance(batch, str) else ""
        raise InputTypeError(f"a batch must be a list, or iterable in order, not {type(batch).__name__}{hint}")
    return list(batch)


def documents_of(iterator: Iterable[Any]) -> Iterator[Any]:
    """Yield documents, and the documents in each list or tuple."""
    for item in iterator:
        if isinstance(item, (list, tuple)):
            yield from item
        else:
            yield item


def for_each(work: Callable[[Item], Result], batch: Iterable[Item]) -> list[Result]:
    """Return the result of `work` for each item of a batch.

    The errors of `work` are raised with the item's index at the start of the message. Raises as `list_of` does.
    """
    items = list_of(batch)
    results: list[Result] = []
    try:
        for item in items:
            results.append(work(item))  # noqa: PERF401 (the number of results is the index of the item that fails)
    except (InputTypeError, InvalidTextError, PatternTimeoutError, SpecialTokenError, UnknownTokenError) as error:
        raise type(error)(f"at index {len(results)} of the batch: {error}") from None
    return results
