"""Whether learning fits into memory: an estimate from the counts, which a warning and an error message state."""

from __future__ import annotations

import logging

from bpeflow._util.machine import available_memory
from bpeflow._util.text import format_size
from bpeflow.counting.counts import PretokenCounts

#: Bytes per position of everything whose size is found out only while learning: occurrence lists, pairs, and what the
#: merge with the most occurrences takes. Measured at 32,000 tokens: 5.4 for multilingual text (33 million positions),
#: 6.2 for English (7 million), 6.3 for code (5 million).
_GROWING = 6

#: The most tokens whose ids take 2 bytes (``ext/learn/ids.h``).
_NARROW_IDS = 2**16 - 1

log = logging.getLogger(__name__)


def memory_needed(words: int, positions: int, vocab_size: int) -> int:
    """Estimate the peak memory of learning with a native backend, in bytes, the counts included.

    It was 0.8 to 1.0 of the memory allocated for 32,000 to 100,000 tokens. What depends on the vocabulary alone is left
    out: about 20 MB for 100,000 tokens.

    Args:
        words: number of distinct pre-tokens.
        positions: total bytes of the distinct pre-tokens.
        vocab_size: number of tokens to learn, which decides how many bytes an id takes.

    >>> memory_needed(1_435_704, 32_979_193, 32_000) // 10**6
    322
    """
    ids = (positions + words) * (2 if vocab_size <= _NARROW_IDS else 4)
    return _size_of_counts(words, positions) + ids + _GROWING * positions


def describe_need(counts: PretokenCounts, vocab_size: int) -> str:
    """State the memory that learning takes, and the remedies if that is too much."""
    words, positions = len(counts), int(counts.offsets[-1])
    return (
        f"{words:,} distinct pre-tokens of {format_size(positions)} in total take about "
        f"{format_size(memory_needed(words, positions, vocab_size))} with backend c. Have fewer of them (thin_rare "
        "keeps a part of the rare ones, such as below=5,keep=0.1; max_bytes of a source takes a part of the documents),"
        " or add memory. Counts in a run folder can be reused (--resume, or bpeflow merge)"
    )


def warn_of_need(counts: PretokenCounts, vocab_size: int) -> None:
    """Warn if learning from `counts`, which are in memory already, takes more memory than is available."""
    words, positions = len(counts), int(counts.offsets[-1])
    available = available_memory()
    if memory_needed(words, positions, vocab_size) - _size_of_counts(words, positions) > available:
        log.warning(
            "learning the merges may run out of memory, of which %s are available: %s",
            format_size(available),
            describe_need(counts, vocab_size),
        )


def _size_of_counts(words: int, positions: int) -> int:
    return positions + 16 * words
