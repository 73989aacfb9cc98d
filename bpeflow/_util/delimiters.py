"""Delimiters, special tokens and separators: the roles of their names, and how a text is searched for them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import chain, groupby
from typing import NamedTuple

from bpeflow._util.text import Utf8
from bpeflow.errors import ConfigError, InputTypeError

#: The special tokens of anything that reads a corpus or makes a vocabulary, by default.
END_OF_DOCUMENT = ("<|endoftext|>",)

#: The usual names of the special token that ends a text, in order of precedence.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")

#: The usual names of the special token that begins a text, and of the one that fills rows of a matrix, by priority.
BEGIN_OF_TEXT = ("<|begin_of_text|>", "<s>")
PADDING = ("<|pad|>", "<pad>", "[PAD]")

#: Special tokens that do not end a text.
_OTHER_ROLES = {
    *(*BEGIN_OF_TEXT, "<|startoftext|>", "<|im_start|>", "<bos>", "[CLS]"),
    *(*PADDING, "<|unk|>", "<unk>", "[UNK]", "<|mask|>", "<mask>", "[MASK]"),
}

#: Bytes at the beginning of a string that `Literals` searches with a regular expression, a trie. More: larger
#: expressions, nested up to this depth, which Python limits. Fewer: more positions where none begins are looked at.
_HEAD = 12


class Span(NamedTuple):
    """A range of a text."""

    start: int
    end: int


def special_bytes(token: str) -> bytes:
    """Return the UTF-8 bytes of a special token or a separator.

    Raises:
        InputTypeError: the token is not a `str`.
        ConfigError: the token is empty or has a lone surrogate.
    """
    if not isinstance(token, str):
        raise InputTypeError(f"special token {token!r} is {type(token).__name__}, not str")
    if not token:
        raise ConfigError("a special token must not be an empty string")
    try:
        return token.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the special token {token!r} has a lone surrogate, which is not valid Unicode") from None


def end_of_document(special_tokens: Iterable[str]) -> str | None:
    """Return the special token that ends documents unless the user gives one; None if there is none.

    That is the first of `END_OF_TEXT` that there is. Otherwise it is the first special token, passing over those whose
    names say that they begin or pad text, or stand for unknown or masked text, unless there are no others.
    """
    tokens = list(special_tokens)
    named = (token for token in END_OF_TEXT if token in tokens)
    return next(chain(named, (token for token in tokens if token not in _OTHER_ROLES), tokens), None)


class Literals:
    """Finds byte strings in a text; if several begin at one position, the longest.

    The time to prepare is linear in their size. The time to search does not depend on their number, but, where one may
    begin, on the number of different lengths.

    >>> literals = Literals([b"<a>", b"<a><a>"])
    >>> [*literals.matches(b"x<a><a><a>")]
    [Span(start=1, end=7), Span(start=7, end=10)]
    >>> [*literals.occurrences(b"x<a><a><a>")]
    [Span(start=1, end=7), Span(start=4, end=10), Span(start=7, end=10)]
    """

    def __init__(self, strings: Collection[bytes]) -> None:
        self.longest = max(map(len, strings), default=0)
        self._strings = frozenset(strings)

    def matches(self, text: Utf8, start: int = 0) -> Iterator[Span]:
        """Yield the strings in `text` from `start` on. Overlaps are resolved leftmost-longest."""
        while found := self.find(text, start):
            yield found
            start = found.end

    def occurrences(self, text: Utf8, start: int = 0) -> Iterator[Span]:
        """Yield the longest string at each position where one begins, even if they overlap."""
        while found := self.find(text, start):
            yield found
            start = found.start + 1

    def find(self, text: Utf8, start: int = 0) -> Span | None:
        """Return the first string in `text` from `start` on."""
        while match := self._heads.search(text, start):
            start = match.start()
            for length in self._lengths:
                string = bytes(text[start : start + length])
                if string in self._strings:
                    return Span(start, start + len(string))
            start += 1
        return None

    def begins_at_end(self, text: bytes, start: int) -> int:
        """Return the first position from `start` on where a string may begin that extends beyond `text`.

        If there is none, return the length of `text`.
        """
        for position in range(max(start, len(text) - self.longest + 1), len(text)):
            tail = text[position:]
            following = bisect_right(self._sorted, tail)
            if following < len(self._sorted) and self._sorted[following].startswith(tail):
                return position
        return len(text)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return sorted(self._strings)

    @cached_property
    def _lengths(self) -> list[int]:
        """The lengths of strings, in descending order."""
        return sorted({*map(len, self._strings)}, reverse=True)

    @cached_property
    def _heads(self) -> re.Pattern[bytes]:
        heads = sorted({string[:_HEAD] for string in self._strings})
        return re.compile(_trie(heads) or b"(?!)", re.DOTALL)


def _trie(strings: list[bytes]) -> bytes:
    """Return a regular expression for the longest of the strings, which are in ascending order, that a text has."""
    ends = bool(strings) and not strings[0]
    branches = []
    for first, group in groupby(strings[ends:], key=lambda string: string[:1]):
        branches.append(re.escape(first) + _trie([string[1:] for string in group]))
    alternatives = branches[0] if len(branches) == 1 and not ends else b"(?:" + b"|".join(branches) + b")"
    return (alternatives + (b"?" if ends else b"")) if branches else b""
