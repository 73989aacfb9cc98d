"""Encoding of large texts, and of many texts, in several threads.

Threads pay off with the native encoder, which releases the interpreter lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.machine import available_cores
from bpeflow.errors import ConfigError, InvalidTextError, PatternTimeoutError, UnmatchedTextError
from bpeflow.flow import map_in_threads
from bpeflow.pretokenize.cutter import Cutter, load_cutter
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.encoder import Encoder, invalid_utf8_error, text_error
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.tokenizer.validate import for_each

#: Size of the parts that threads encode, in bytes, and the minimum for using threads at all. Smaller: the cost of
#: starting threads weighs more. Larger: fewer texts benefit, and threads idle longer while the last part is encoded.
PART_BYTES = 512 * 1024

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

    The ids of each part are copied into one array as soon as those of all parts before it are. The array is allocated
    for one id per byte, which costs nothing, because only pages that are written take memory.
    """

    def encode(begin: int, end: int) -> NDArray[Any]:
        with memoryview(text) as view, view[begin:end] as part:
            return encoder.encode_to_array(part, specials, dtype)

    spans = [*cut_text(text, pretokenizer, specials)]
    parts = in_threads(spans, encode, threads)
    try:
        if len(spans) == 1:
            return next(parts)
        ids, size = np.empty(len(text), dtype), 0
        for part in parts:
            if size + len(part) > len(ids):  # only a normalizer makes more ids than a text has bytes
                ids.resize(2 * (size + len(part)), refcheck=False)
            ids[size : size + len(part)] = part
            size += len(part)
        ids.resize(size, refcheck=False)
        return ids
    except UnmatchedTextError as error:
        raise text_error(error, bytes(text), specials, pretokenizer) from None  # with the position in the whole text
    except InvalidTextError:
        raise invalid_utf8_error(text) from None


def encode_texts(
    encoder: Encoder, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any], threads: int | None
) -> list[list[int]]:
    """Return the ids of each text. Raises as `Tokenizer.encode_batch` does."""

    def encode(begin: int, end: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return encoder.encode_batch(texts[begin:end], specials, dtype)

    encoded: list[list[int]] = []
    try:
        for group, ends in in_threads([*group_texts(texts)], encode, threads):
            ids, last = group.tolist(), ends.tolist()
            encoded += map(ids.__getitem__, map(slice, [0, *last], last))
        return encoded
    except (PatternTimeoutError, UnmatchedTextError):
        return for_each(lambda text: encoder.encode(text, specials), texts)  # raises it with the index


def in_threads(spans: Sequence[Span], work: Callable[[int, int], Result], threads: int | None) -> Iterator[Result]:
    """Yield the result of `work` for each span (begin, end), in order, from up to `threads` threads.

    Raises `ConfigError` if `threads` is not valid.
    """
    workers = validate_threads(threads)
    if workers == 1 or len(spans) < 2:
        return itertools.starmap(work, spans)
    return map_in_threads(lambda span: work(*span), spans, workers)


def validate_threads(threads: int | None) -> int:
    """Return the number of threads to use; None means one per core. Raises `ConfigError` unless it is at least 1."""
    if threads is None:
        return available_cores()
    if not isinstance(threads, int) or threads < 1:
        raise ConfigError(
            f"the number of threads is {threads!r}; it must be an integer of at least 1, or None for one per core"
        )
    return threads


def cut_text(text: Utf8, pretokenizer: Pretokenizer, specials: SpecialTokens) -> Iterator[Span]:
    """Cut a text into parts of at least `PART_BYTES` whose ids, concatenated, are the ids of the whole.

    Cuts are safe cuts of the pattern. No occurrence of a special token spans a cut, not even one that encoding does not
    find because it overlaps with another. So the two sides of a cut have the special tokens that the whole has. A text
    with a pattern that cannot be compiled is not cut.
    """
    start = 0
    cutter = load_cutter(pretokenizer) if len(text) > PART_BYTES else None
    while cutter is not None and len(text) - start > PART_BYTES:
        cut = _find_cut(text, start + PART_BYTES, cutter, specials)
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


def group_texts(texts: Sequence[bytes]) -> Iterator[Span]:
    """Divide texts into groups of about `PART_BYTES`, in order."""
    begin = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= PART_BYTES:
            yield begin, index + 1
            begin, size = index + 1, 0
    if begin < len(texts):
        yield begin, len(texts)
