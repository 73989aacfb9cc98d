"""`Literals`: finding byte strings, such as special tokens, in a text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from bpeflow._util.text import Utf8
from bpeflow.errors import ConfigError, InputTypeError

#: Bytes that `Literals` compares with a regular expression, which is a trie. More: larger expressions, nested up to
#: this depth, which Python limits. Fewer: more strings are compared one by one.
_HEAD = 32


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
    except UnicodeEncodeError as error:
        raise ConfigError(f"the special token {token!r} is not valid Unicode: {error.reason}") from None


class Literals:
    """Finds byte strings in a text; if several begin at one position, the longest.

    The time to prepare is linear in their size, and the time to search does not depend on their number, except for long
    ones that begin alike.

    >>> literals = Literals([b"<a>", b"<a><a>"])
    >>> [*literals.matches(b"x<a><a><a>")]
    [Span(start=1, end=7), Span(start=7, end=10)]
    >>> [*literals.occurrences(b"x<a><a><a>")]
    [Span(start=1, end=7), Span(start=4, end=10), Span(start=7, end=10)]
    """

    def __init__(self, strings: Collection[bytes]) -> None:
        self._strings = strings
        self.longest = max(map(len, strings), default=0)

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
        if not self._strings:
            return None
        while match := self._heads.search(text, start):
            start, end = match.span()
            if end - start < _HEAD:
                return Span(start, end)
            for string in self._long.get(bytes(match.group()), ()):
                if start + len(string) <= len(text) and text[start : start + len(string)] == string:
                    return Span(start, start + len(string))
            if shorter := self._short.match(text, start):
                return Span(*shorter.span())
            start += 1
        return None

    def begins_at_end(self, text: bytes, start: int) -> int:
        """Return the first position from `start` on where a string may begin that extends beyond `text`.

        If there is none, return the length of `text`.
        """
        start = max(start, len(text) - self.longest + 1)
        position = start
        while self._long and (match := self._heads.search(text, position)):
            position, tail = match.start(), text[match.start() :]
            if any(len(tail) < len(string) and string.startswith(tail) for string in self._long.get(match.group(), ())):
                return position
            position += 1
        starts = range(max(start, len(text) - _HEAD + 1), len(text))
        return next((position for position in starts if text[position:] in self._prefixes), len(text))

    @cached_property
    def _long(self) -> dict[bytes, list[bytes]]:
        """The strings of at least `_HEAD` bytes, the longest first, by their heads."""
        long: dict[bytes, list[bytes]] = {}
        for string in sorted(self._strings, key=len, reverse=True):
            if len(string) >= _HEAD:
                long.setdefault(string[:_HEAD], []).append(string)
        return long

    @cached_property
    def _heads(self) -> re.Pattern[bytes]:
        return re.compile(_trie(sorted({string[:_HEAD] for string in self._strings})), re.DOTALL)

    @cached_property
    def _short(self) -> re.Pattern[bytes]:
        return re.compile(_trie(sorted({string for string in self._strings if len(string) < _HEAD})) or b"(?!)")

    @cached_property
    def _prefixes(self) -> frozenset[bytes]:
        """The proper, non-empty prefixes of strings, of fewer than `_HEAD` bytes."""
        return frozenset(string[:end] for string in self._strings for end in range(1, min(len(string), _HEAD)))


def _trie(strings: list[bytes]) -> bytes:
    """Return a regular expression for the longest of the strings, which are in ascending order, that a text has."""
    ends = bool(strings) and not strings[0]
    branches = []
    for first, group in groupby(strings[ends:], key=lambda string: string[:1]):
        branches.append(re.escape(first) + _trie([string[1:] for string in group]))
    alternatives = branches[0] if len(branches) == 1 and not ends else b"(?:" + b"|".join(branches) + b")"
    return (alternatives + (b"?" if ends else b"")) if branches else b""
