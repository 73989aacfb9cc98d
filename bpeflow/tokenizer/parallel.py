"""Encoding of large texts, and of many texts, in several threads.

Threads pay off with the native encoder, which releases the interpreter lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.machine import available_cores
from bpeflow.errors import ConfigError
from bpeflow.flow import Pipeline, QueueSpec, Source, Stage, in_order
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens

#: Size of the parts that threads encode, in bytes, and the minimum for using threads at all. Smaller: the cost of
#: starting threads weighs more. Larger: fewer texts benefit, and threads idle longer while the last part is encoded.
PART_BYTES = 512 * 1024

#: Parts in the queue to each thread. Fewer: threads idle until the caller takes a result, or while another one is
#: behind, as parts are dealt out in turn. More: more results wait in memory.
_PARTS_PER_THREAD = 8

Span = tuple[int, int]
Result = TypeVar("Result")


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
    if len(first) < 2:
        yield from itertools.starmap(work, itertools.chain(first, remaining))
        return

    def encode(numbered: Iterator[tuple[int, Span]]) -> Iterator[tuple[int, Result]]:
        for number, span in numbered:
            yield number, work(*span)

    queue = QueueSpec("part_queue", max_items=workers * _PARTS_PER_THREAD, route=itemgetter(0))
    parts = Source("parts", lambda: enumerate(itertools.chain(first, remaining)))
    with closing(Pipeline(parts, [Stage("encoder", encode, queue, workers)]).run("threads")) as encoded:
        for _, result in in_order(encoded, itemgetter(0)):
            yield result


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


def concatenate(parts: Iterable[NDArray[Any]], max_length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Concatenate one or more arrays as they arrive, given an estimate of their total length.

    The array is allocated for `max_length` ids from the start. That costs nothing, because the system provides memory
    only for pages that are written. Only a normalizer can make more ids than a text has bytes.
    """
    remaining = iter(parts)
    first = next(remaining)
    second = next(remaining, None)
    if second is None:
        return first
    ids, end = np.empty(max_length, dtype), 0
    for part in itertools.chain((first, second), remaining):
        if end + len(part) > len(ids):
            ids.resize(2 * (end + len(part)), refcheck=False)
        ids[end : end + len(part)] = part
        end += len(part)
    ids.resize(end, refcheck=False)
    return ids
