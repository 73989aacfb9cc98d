"""Large texts, and many of them, encoded in several threads: native encoders leave the interpreter to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bpeflow.cores import available_cores
from bpeflow.errors import ConfigError
from bpeflow.pretokenize import Pretokenizer
from bpeflow.tokenizer.special import SpecialTokens

PART_BYTES = 512 * 1024
"""The least that is given to a thread, and about what each takes at a time. Smaller: more is lost on starting threads;
larger: fewer texts gain, and threads wait longer for the last one."""

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_threads(parts: Sequence[Part], work: Callable[[Part], Result], threads: int | None) -> list[Result]:
    """Do `work` for each part, in up to `threads` threads (None: as many as there are cores); results in order."""
    workers = min(checked_threads(threads), len(parts))
    if workers <= 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, parts))


def checked_threads(threads: int | None) -> int:
    """How many threads are meant. Raises `ConfigError` for less than one."""
    if threads is None:
        return available_cores()
    if not isinstance(threads, int) or threads < 1:
        raise ConfigError(f"threads is {threads!r}; give a number from 1 on, or None for as many as there are cores")
    return threads


def cut_text(text: bytes, pretokenizer: Pretokenizer, specials: SpecialTokens) -> list[bytes]:
    """Cut a text where its parts, each encoded on its own, give what the whole gives: at the pattern's safe cuts.

    A cut lies across no special token, found or only possible (one that overlaps with a found one), so both sides have
    the special tokens that the whole has. A text with a custom pattern stays whole.
    """
    parts, start = [], 0
    while len(text) - start > PART_BYTES:
        cut = _free_cut(text, start + PART_BYTES, pretokenizer, specials)
        if cut is None:
            break
        parts.append(text[start:cut])
        start = cut
    return [*parts, text[start:]]


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


def _free_cut(text: bytes, start: int, pretokenizer: Pretokenizer, specials: SpecialTokens) -> int | None:
    cut = pretokenizer.find_cut(text, start)
    while cut is not None and specials.lie_across(text, cut):
        cut = pretokenizer.find_cut(text, cut + 1)
    return cut
