"""What users give as a vocabulary, checked and made into a `Vocab`."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from mmap import mmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import FormatError, InputTypeError, InvalidTextError, SpecialTokenError, UnknownTokenError
from bpeflow.formats.untrusted import MOST_GAPS
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.tokenizer.encoder import unknown_token
from bpeflow.tokenizer.special_tokens import special_bytes
from bpeflow.vocab import Merge, Vocab

_BYTES = (bytes, bytearray, memoryview, mmap)


def to_utf8(text: str, start: int = 0) -> bytes:
    """The UTF-8 form of a text that begins at character `start` of the whole.

    Raises `InputTypeError` for anything but a `str`, and `InvalidTextError` for a lone surrogate.
    """
    if not isinstance(text, str):
        raise InputTypeError(f"text to encode is a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {start + error.start}, which "
            "UTF-8 cannot hold; mend it first, for instance with text.encode('utf-16', 'surrogatepass')"
            ".decode('utf-16', 'replace')"
        ) from None


def utf8_of(text: str | Utf8) -> Utf8:
    """The UTF-8 form of a text; bytes as they are, which encoders look at. Raises as `to_utf8`."""
    if isinstance(text, memoryview):
        if not text.c_contiguous:
            raise InputTypeError("the memoryview to encode has gaps; give bytes(...) of it")
        return text.cast("B")
    return text if isinstance(text, _BYTES) else to_utf8(text)


def not_utf8(text: Utf8) -> InvalidTextError:
    """Say where bytes are not UTF-8."""
    try:
        bytes(text).decode()
    except UnicodeDecodeError as error:
        return InvalidTextError(f"the text is not UTF-8: {error.reason} at byte {error.start}")
    return InvalidTextError("the text is not UTF-8")


#: Ids to decode.
Ids = Sequence[int] | NDArray[Any]


def validate_ids(ids: Ids, tokens: int) -> NDArray[Any]:
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


def joined(parts: Iterable[NDArray[Any]], most: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Put parts, one at least, together as they come; there are at most so many ids in all.

    The array has room for that many from the start, which costs nothing: only what is written to becomes memory.
    """
    remaining = iter(parts)
    first = next(remaining)
    second = next(remaining, None)
    if second is None:
        return first
    ids, end = np.empty(most, dtype), 0
    for part in itertools.chain((first, second), remaining):
        ids[end : end + len(part)] = part
        end += len(part)
    ids.resize(end, refcheck=False)
    return ids


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


def vocab_of(vocab: Mapping[int, bytes] | Vocab, merges: Iterable[Merge]) -> Vocab:
    """Make a `Vocab` without special tokens of its own of a mapping, or of another with other merges.

    Raises `InputTypeError` for a wrong type, and `FormatError` for an id that is negative or far too large.
    """
    if not isinstance(merges, Iterable):
        raise InputTypeError(f"merges are a list of pairs of bytes, not {type(merges).__name__}")
    pairs = tuple(_merge(rank, merge) for rank, merge in enumerate(merges))
    if isinstance(vocab, Vocab):
        return vocab if pairs == vocab.merges else replace(vocab, merges=pairs)
    if not isinstance(vocab, Mapping):
        raise InputTypeError(f"vocab is a mapping from id to bytes, not {type(vocab).__name__}")
    for token_id, token in vocab.items():
        _check_entry(token_id, token, len(vocab))
    tokens = [b""] * (max(vocab, default=-1) + 1)
    for token_id, token in vocab.items():
        tokens[token_id] = bytes(token)
    return Vocab(tuple(tokens), {}, pairs)


def add_special_tokens(vocab: Vocab, special_tokens: Iterable[str]) -> Vocab:
    """A vocabulary with these special tokens, too: with the lowest id that has their bytes, else with the next ids.

    Raises `InputTypeError` and `ConfigError` for what is no special token.
    """
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        raise InputTypeError(f"special_tokens is {special_tokens!r}; give a list of strings")
    ids = dict(vocab.special_tokens)
    tokens = list(vocab.tokens)
    known = {token: token_id for token_id, token in reversed([*enumerate(tokens)])}
    for special in special_tokens:
        token = special_bytes(special)
        if special in ids:
            continue
        if token in known:
            ids[special] = known[token]
        else:
            ids[special] = len(tokens)
            tokens.append(token)
    return vocab if ids == vocab.special_tokens else Vocab(tuple(tokens), ids, vocab.merges)


def _merge(rank: int, merge: Any) -> Merge:
    if isinstance(merge, tuple) and len(merge) == 2 and isinstance(merge[0], bytes) and isinstance(merge[1], bytes):
        return merge
    if isinstance(merge, list) and len(merge) == 2:
        return _merge(rank, tuple(merge))
    raise InputTypeError(f"merge {rank} is {merge!r}; a merge is a pair of bytes")


def _check_entry(token_id: Any, token: Any, tokens: int) -> None:
    if not isinstance(token_id, int):
        raise InputTypeError(f"the id {token_id!r} in the vocabulary is {type(token_id).__name__}; give {{id: bytes}}")
    if not isinstance(token, bytes):
        raise InputTypeError(f"token {token_id} in the vocabulary is {token!r}; give its bytes")
    if not 0 <= token_id < tokens + MOST_GAPS:
        raise FormatError(f"the vocabulary has the id {token_id}, but only {tokens:,} tokens")


Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(work: Callable[[Item], Result], batch: Iterable[Item]) -> list[Result]:
    """Do `work` for each item of a batch; its errors are raised with the item's place in front.

    Raises `InputTypeError` for what is no batch; a `str` is none: one text where several belong.
    """
    if isinstance(batch, str) or not isinstance(batch, Iterable):
        raise InputTypeError(f"a batch is a list, not {type(batch).__name__}; one alone is for encode, or decode")
    done: list[Result] = []
    try:
        for item in batch:
            done.append(work(item))  # how many there are tells where it failed
    except (InputTypeError, InvalidTextError, SpecialTokenError, UnknownTokenError) as error:
        raise type(error)(f"at index {len(done)} of the batch: {error}") from None
    return done
