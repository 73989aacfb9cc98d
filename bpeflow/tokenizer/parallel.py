"""Encoding of large texts, and of many texts, in several threads.

Threads pay off with the native encoder, which releases the interpreter lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow import flow
from bpeflow._util.machine import available_cores
from bpeflow.errors import (
    ConfigError,
    InputTypeError,
    InvalidTextError,
    PatternTimeoutError,
    SpecialTokenError,
    UnmatchedTextError,
)
from bpeflow.pretokenize.cutter import Cutter, load_cutter
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.encoder import EncodedTexts, Encoder, invalid_utf8_error, text_error
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.validate import for_each, is_integer

if TYPE_CHECKING:
    from bpeflow.backends.base import WordCounts

#: Smallest size of the parts that threads encode, in bytes, and the minimum for using threads at all. Smaller: the cost
#: of starting threads weighs more. Larger: fewer texts benefit, and threads idle longer while the last part is encoded.
PART_BYTES = 512 * 1024

#: Largest size of these parts, and of the groups that many texts are divided into, in bytes and characters. Smaller:
#: handing them to threads weighs more, 5-10 % of the time at `PART_BYTES`. Larger: more memory, and threads idle longer
#: at the end.
GROUP_BYTES = 2 * 1024 * 1024

#: Distinct pre-tokens that are encoded at once. More: more memory, about 1 KB each. Fewer: more calls.
_BATCH = 100_000

#: Number of parts and of groups for each thread, as long as neither limit is reached.
_PARTS_PER_THREAD, _GROUPS_PER_THREAD = 16, 4

Span = tuple[int, int]

Result = TypeVar("Result")


def encode_text(
    encoder: Encoder,
    text: Utf8,
    specials: SpecialTokens,
    pretokenizer: Pretokenizer,
    dtype: np.dtype[Any],
    threads: int | None,
) -> NDArray[Any]:
    """Return the ids of a text, encoded in parts. Raises as `Tokenizer.encode_to_numpy` does.

    The array is allocated for one id per byte. Only a normalizer makes more.
    """
    if threads is not None:
        validate_threads(threads)
    if len(text) <= PART_BYTES:  # without the calls below, which a text of some kilobytes would notice
        return encoder.encode_to_array(text, specials, dtype)
    return concatenate(_encode_parts(encoder, text, specials, pretokenizer, dtype, threads), len(text), dtype)


def count_ids(
    encoder: Encoder, text: Utf8, specials: SpecialTokens, pretokenizer: Pretokenizer, dtype: np.dtype[Any]
) -> int:
    """Return the number of ids of a text, of which only the parts in work are in memory. Raises as `encode_text`."""
    if len(text) <= PART_BYTES:
        return len(encoder.encode_to_array(text, specials, dtype))
    return sum(map(len, _encode_parts(encoder, text, specials, pretokenizer, dtype, None)))


def _encode_parts(
    encoder: Encoder,
    text: Utf8,
    specials: SpecialTokens,
    pretokenizer: Pretokenizer,
    dtype: np.dtype[Any],
    threads: int | None,
) -> Iterator[NDArray[Any]]:
    """Yield the ids of each part of a text."""

    def encode(begin: int, end: int) -> NDArray[Any]:
        with memoryview(text) as view, view[begin:end] as part:
            return encoder.encode_to_array(part, specials, dtype)

    size = _part_size(len(text), _PARTS_PER_THREAD * validate_threads(threads))
    try:
        yield from in_threads([*cut_text(text, pretokenizer, specials, size)], encode, threads)
    except UnmatchedTextError as error:
        raise text_error(error, bytes(text), specials, pretokenizer) from None  # with the position in the whole text
    except InvalidTextError:
        raise invalid_utf8_error(text) from None


def encode_texts(
    encode: Callable[[list[str]], EncodedTexts],
    encode_one: Callable[[str], Any],
    texts: list[str],
    threads: int | None,
) -> Iterator[EncodedTexts]:
    """Yield the ids of texts, encoded in groups, in order. Raises as `Tokenizer.encode_batch` does.

    Args:
        encode: encodes a group.
        encode_one: encodes a single text, to find the one that raises.
        texts: the texts.
        threads: the number of threads.
    """
    try:
        groups = group_texts(texts, validate_threads(threads))
        yield from in_threads(groups, lambda begin, end: encode(texts[begin:end]), threads)
    except (InputTypeError, InvalidTextError, PatternTimeoutError, SpecialTokenError, TypeError):
        for_each(encode_one, texts)  # raises it with the index
        raise


def encoded_batches(encoder: Encoder, pretokens: WordCounts) -> Iterator[tuple[int, NDArray[Any], NDArray[np.int64]]]:
    """Encode the distinct pre-tokens of a corpus in batches.

    Yield the number of each batch's first pre-token, the ids, and where each pre-token ends.
    """
    # Here and not in the threads: counts that were unloaded are read again for it.
    data, offsets, number = pretokens.data, pretokens.offsets, len(pretokens)

    def encode(begin: int, end: int) -> tuple[int, NDArray[Any], NDArray[np.int64]]:
        return begin, *encoder.encode_pretokens(data, offsets[begin : end + 1], np.dtype(np.uint32))

    return in_threads([(i, min(i + _BATCH, number)) for i in range(0, number, _BATCH)], encode, None)


def concatenate(parts: Iterable[NDArray[Any]], expected: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the ids of all parts in one array, into which each is copied when it arrives.

    The array is allocated for `expected` ids, and grows if there are more. Pages without ids take no memory.
    """
    ids, size = np.empty(expected, dtype), 0
    for part in parts:
        if size + len(part) > len(ids):
            ids.resize(2 * (size + len(part)), refcheck=False)
        ids[size : size + len(part)] = part
        size += len(part)
    ids.resize(size, refcheck=False)
    return ids


def in_threads(spans: Sequence[Span], work: Callable[[int, int], Result], threads: int | None) -> Iterator[Result]:
    """Yield the result of `work` for each span (begin, end), in order, from up to `threads` threads.

    Raises `ConfigError` if `threads` is not valid.
    """
    workers = validate_threads(threads)
    if workers == 1 or len(spans) < 2:
        return itertools.starmap(work, spans)
    return flow.map_in_threads(lambda span: work(*span), spans, workers)


def validate_threads(threads: int | None) -> int:
    """Return the number of threads to use; None means one per core. Raises `ConfigError` unless it is at least 1."""
    if threads is None:
        return available_cores()
    if not is_integer(threads) or threads < 1:
        raise ConfigError(
            f"the number of threads is {threads!r}; it must be an integer of at least 1, or None for one per core"
        )
    return threads


def cut_text(text: Utf8, pretokenizer: Pretokenizer, specials: SpecialTokens, size: int = 0) -> Iterator[Span]:
    """Cut a text into parts of at least `size` and `PART_BYTES` whose ids, concatenated, are the ids of the whole.

    Cuts are safe cuts of the pattern. No occurrence of a special token spans a cut, not even one that encoding does not
    find because it overlaps with another. So the two sides of a cut have the special tokens that the whole has. A text
    with a pattern that cannot be compiled is not cut.
    """
    start, size = 0, max(size, PART_BYTES)
    cutter = load_cutter(pretokenizer) if len(text) > size else None
    while cutter is not None and len(text) - start > size:
        cut = _find_cut(text, start + size, cutter, specials)
        if cut is None:
            break
        yield start, cut
        start = cut
    yield start, len(text)


def _find_cut(text: Utf8, start: int, cutter: Cutter, specials: SpecialTokens) -> int | None:
    cut = cutter.find_cut(text, start)
    while cut is not None and specials.spans(text, cut):
        cut = cutter.find_cut(text, cut + 1)
    return cut


def _part_size(size: int, parts: int) -> int:
    """Return the size of parts of which there are about `parts`, within the limits."""
    return max(PART_BYTES, min(size // parts, GROUP_BYTES))


def group_texts(texts: Sequence[str], threads: int) -> list[Span]:
    """Divide texts into groups for threads, in order."""
    ends = np.fromiter(map(len, texts), np.int64, len(texts)).cumsum()
    size = int(ends[-1]) if len(ends) else 0
    enough = _part_size(size, _GROUPS_PER_THREAD * threads)
    cuts = np.searchsorted(ends, np.arange(enough, size, enough)) + 1
    borders = [0, *dict.fromkeys(cuts[cuts < len(texts)].tolist()), len(texts)]
    return [*itertools.pairwise(borders)] if texts else []
