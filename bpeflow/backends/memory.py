"""An estimate of the memory that learning takes."""

from __future__ import annotations

#: Bytes per position of everything whose size is found out only while learning: occurrence lists, pairs, and what the
#: merge with the most occurrences takes. Measured at 32,000 tokens: 7.9 for multilingual text (33 million positions),
#: 8.2 for English (7 million).
_GROWING = 8

#: The most tokens whose ids take 2 bytes (``ext/learn/ids.h``).
_NARROW_IDS = 2**16 - 1


def memory_needed(words: int, positions: int, vocab_size: int) -> int:
    """Estimate the peak memory of learning with a native backend, in bytes, the counts included.

    It was 0.8 to 1.0 of the memory allocated for 32,000 to 100,000 tokens. What depends on the vocabulary alone is left
    out: about 20 MB for 100,000 tokens.

    Args:
        words: number of distinct pre-tokens.
        positions: total bytes of the distinct pre-tokens.
        vocab_size: number of tokens to learn, which decides how many bytes an id takes.

    >>> memory_needed(1_435_704, 32_979_193, 32_000) // 10**6
    388
    """
    counts = positions + 16 * words
    ids = (positions + words) * (2 if vocab_size <= _NARROW_IDS else 4)
    return counts + ids + _GROWING * positions
