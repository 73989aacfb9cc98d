"""Words to count: with common prefixes, trailing zero bytes, and lengths around the special cases."""

from __future__ import annotations

from fuzzing.choices import Choices

_UNITS = (b"a", b"b", b"\0", b"\xff", b"aaaaaaa", b"aaaaaaaa", b"ab", b"a\0", "é".encode(), b"x" * 15, b"x" * 16)


def make_words(choices: Choices) -> dict[bytes, int]:
    """Make up to 40 words with their counts."""
    words: dict[bytes, int] = {}
    for _ in range(choices.below(40)):
        word = b"".join(choices.one_of(_UNITS) for _ in range(choices.below(4) + 1))
        if choices.flag():
            word += choices.take(choices.below(20))
        words[word] = choices.count()
    return words
