"""Encoding of large texts, and of many texts, in several threads.

Threads pay off with the native encoder, which releases the interpreter lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.machine import available_cores
from bpeflow.errors import ConfigError, InvalidTextError, UnmatchedTextError
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.encoder import Encoder, invalid_utf8_error
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
    """Return the ids of a text, encoded in parts. Raises as `Tokenizer.encode_to_numpy` does."""
    joined = JoinedIds(len(text), dtype)

    def encode(begin: int, end: int) -> None:
        with memoryview(text) as view, view[begin:end] as part:
            joined.add(begin, end, encoder.encode_to_array(part, specials, dtype))

    try:
        for _ in in_threads(cut_text(text, pretokenizer, specials), encode, threads):
            pass
        return joined.result()
    except UnmatchedTextError:
        raise
    except InvalidTextError:
        raise invalid_utf8_error(text) from None  # with the position in the whole text


def encode_texts(
    encoder: Encoder, texts: Sequence[bytes], specials: SpecialTokens, dtype: np.dtype[Any], threads: int | None
) -> list[list[int]]:
    """Return the ids of each text. Raises as `Tokenizer.encode_batch` does."""

    def encode(begin: int, end: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return encoder.encode_batch(texts[begin:end], specials, dtype)

    encoded: list[list[int]] = []
    try:
        for group, ends in in_threads(group_texts(texts), encode, threads):
            ids, last = group.tolist(), ends.tolist()
            encoded += map(ids.__getitem__, map(slice, [0, *last], last))
        return encoded
    except UnmatchedTextError:
        return for_each(lambda text: encoder.encode(text, specials), texts)  # raises it with the index


def in_threads(spans: Iterable[Span], work: Callable[[int, int], Result], threads: int | None) -> Iterator[Result]:
    """Yield the result of `work` for each span, in order, from up to `threads` threads (None: one per core).

    Args:
        spans: the begin and end of each part of something that `work` knows.
        work: called with a begin and an end.
        threads: the number of threads.

    Raises `ConfigError` if `threads` is not valid.
    """
    workers, remaining = validate_threads(threads), iter(spans)
    first = list(itertools.islice(remaining, 2)) if workers > 1 else []
    parts = itertools.chain(first, remaining)
    if len(first) < 2:
        yield from itertools.starmap(work, parts)
        return
    with futures.ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda span: work(*span), parts)


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
    with a custom pattern is not cut.
    """
    start = 0
    while len(text) - start > PART_BYTES:
        cut = _find_cut(text, start + PART_BYTES, pretokenizer, specials)
        if cut is None:
            break
        yield start, cut
        start = cut
    yield start, len(text)


def _find_cut(text: Utf8, start: int, pretokenizer: Pretokenizer, specials: SpecialTokens) -> int | None:
    cut = pretokenizer.find_cut(text, start)
    while cut is not None and specials.spans(text, cut):
        cut = pretokenizer.find_cut(text, cut + 1)
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


class JoinedIds:
    """Joins the ids of the parts of a text in one array. Threads add parts in any order, and copy them into place.

    Copying is worth sharing: when the system provides the memory of the array, page by page, that may take as long as
    encoding.

    The array is allocated for one id per byte. That costs nothing, because only pages that are written take memory.
    Only a normalizer can make more ids than a text has bytes.

    Args:
        length: the length of the text in bytes.
        dtype: the dtype of the ids.
    """

    def __init__(self, length: int, dtype: np.dtype[Any]) -> None:
        self._length = length
        self._ids = np.empty(length, dtype)
        self._lock = Lock()
        self._early: dict[int, tuple[int, NDArray[Any]]] = {}  # by the begin of the part: its end and its ids
        self._joined = self._end = 0  # bytes of text whose ids have places, and the number of these ids
        self._excess: list[NDArray[Any]] = []  # what does not fit, and all that follows it

    def add(self, begin: int, end: int, ids: NDArray[Any]) -> None:
        """Add the ids of a part of the text. Copy those that have places now: these, and others that came too early."""
        if end - begin == self._length:
            self._ids, self._end = ids, len(ids)
            return
        with self._lock:
            self._early[begin] = end, ids
            placed = [*self._place()]
        for first, part in placed:
            self._ids[first : first + len(part)] = part

    def _place(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Find places for the parts that follow those that have one. Yield both."""
        while self._joined in self._early:
            self._joined, ids = self._early.pop(self._joined)
            if self._excess or self._end + len(ids) > len(self._ids):
                self._excess.append(ids)
            else:
                yield self._end, ids
                self._end += len(ids)

    def result(self) -> NDArray[Any]:
        """Return the ids of the whole text, when all parts were added."""
        self._ids.resize(self._end, refcheck=False)
        return np.concatenate([self._ids, *self._excess]) if self._excess else self._ids
