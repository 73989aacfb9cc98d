"""Large texts, and many of them, encoded in several threads: native encoders leave the interpreter to others."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bpeflow._util.cpu import available_cores
from bpeflow.errors import ConfigError
from bpeflow.pretokenize.cuts import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens

PART_BYTES = 512 * 1024


"""The least that is given to a thread, and about what each takes at a time. Smaller: more is lost on starting threads;
larger: fewer texts gain, and threads wait longer for the last one."""


_AHEAD = 4


"""Parts under way for each thread. Fewer: threads wait for the caller; more: more results wait for it, in memory."""


Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(parts: Iterable[Part], work: Callable[[Part], Result], threads: int | None) -> Iterator[Result]:
    """Do `work` for each part, in up to `threads` threads (None: as many as there are cores); results in order."""
    workers, remaining = validate_threads(threads), iter(parts)
    first = list(itertools.islice(remaining, 2)) if workers > 1 else []
    if len(first) < 2:
        yield from map(work, first)
        yield from map(work, remaining)
        return
    under_way: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for part in itertools.chain(first, remaining):
                under_way.append(pool.submit(work, part))
                if len(under_way) == workers * _AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:  # after a failure threads end with the part that they have
            pool.shutdown(wait=False, cancel_futures=True)


def validate_threads(threads: int | None) -> int:
    """How many threads are meant. Raises `ConfigError` for less than one."""
    if threads is None:
        return available_cores()
    if not isinstance(threads, int) or threads < 1:
        raise ConfigError(f"threads is {threads!r}; give a number from 1 on, or None for as many as there are cores")
    return threads


def cut_text(text: Utf8, pretokenizer: Pretokenizer, specials: SpecialTokens) -> Iterator[memoryview]:
    """Cut a text where its parts, each encoded on its own, give what the whole gives: at the pattern's safe cuts.

    A cut lies across no special token, found or only possible (one that overlaps with a found one), so both sides have
    the special tokens that the whole has. A text with a custom pattern stays whole.
    """
    view, start = memoryview(text), 0
    while len(text) - start > PART_BYTES:
        cut = _free_cut(text, start + PART_BYTES, pretokenizer, specials)
        if cut is None:
            break
        yield view[start:cut]
        start = cut
    yield view[start:]


def group_texts(texts: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide texts into groups of about `PART_BYTES`, in order."""
    group: list[bytes] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= PART_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _free_cut(text: Utf8, start: int, pretokenizer: Pretokenizer, specials: SpecialTokens) -> int | None:
    cut = pretokenizer.find_cut(text, start)
    while cut is not None and specials.lie_across(text, cut):
        cut = pretokenizer.find_cut(text, cut + 1)
    return cut
