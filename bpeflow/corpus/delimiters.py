"""Delimiters: finding the document separator and the special tokens in the bytes of a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bpeflow.errors import ConfigError


class Document(NamedTuple):
    """The position of one document in a text.

    Attributes:
        pieces: (start, end) byte positions of the text between delimiters. A piece may be empty.
        closed: whether a separator follows the document.
    """

    pieces: list[tuple[int, int]]
    closed: bool


@dataclass(frozen=True)
class Delimiters:
    """The document separator and the special tokens of a corpus, neither of which is counted.

    The separator ends a document. A special token only splits the document that contains it. Delimiters are found as
    UTF-8 bytes, from left to right and without overlap; where several begin at the same position, the longest is taken.
    A special token equal to the separator is the separator, and duplicates count once. Without delimiters, all text is
    one piece.

    >>> list(Delimiters("||", ["<s>"]).documents(b"a<s>b||c"))
    [Document(pieces=[(0, 1), (4, 5)], closed=True), Document(pieces=[(7, 8)], closed=False)]

    Attributes:
        separator: the document separator; None if there is none.
        special_tokens: the special tokens.
        record_end: bytes that end each document in place of a separator, where the text is made of records. They are
            not valid UTF-8.
        all: the separator and the special tokens, each once, longest first.
        longest: length of the longest delimiter in bytes; 0 if there is none.

    Raises:
        ConfigError: a delimiter is empty or not valid Unicode.
    """

    separator: str | None
    special_tokens: Sequence[str] = ()
    record_end: bytes | None = None
    all: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    longest: int = field(init=False, repr=False, compare=False)
    _separator: bytes | None = field(init=False, repr=False, compare=False)
    _pattern: re.Pattern[bytes] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        separator = self.record_end if self.separator is None else _encode(self.separator)
        delimiters = {_encode(token) for token in self.special_tokens} | ({separator} if separator else set())
        longest_first = tuple(sorted(delimiters, key=lambda delimiter: (-len(delimiter), delimiter)))
        pattern = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "all", longest_first)
        set_field(self, "longest", max(map(len, delimiters), default=0))
        set_field(self, "_separator", separator)
        set_field(self, "_pattern", pattern)

    @property
    def separator_bytes(self) -> bytes:
        """The separator; empty if there is none."""
        return self._separator or b""

    @property
    def separator_index(self) -> int:
        """The index of the separator in `all`; the length of `all` if there is none."""
        return len(self.all) if self._separator is None else self.all.index(self._separator)

    def documents(self, data: bytes) -> Iterator[Document]:
        """Yield the documents of `data`, which must not begin inside a delimiter.

        The text after the last separator is a document only if it is not empty.
        """
        pieces: list[tuple[int, int]] = []
        document_start = piece_start = 0
        for match in self.matches(data):
            pieces.append((piece_start, match.start()))
            piece_start = match.end()
            if self.is_separator(match):
                yield Document(pieces, closed=True)
                pieces, document_start = [], piece_start
        if document_start < len(data):
            pieces.append((piece_start, len(data)))
            yield Document(pieces, closed=False)

    def is_separator(self, match: re.Match[bytes]) -> bool:
        """Return whether a match is the document separator."""
        return match.group() == self._separator

    def matches(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """Yield the delimiters that are removed from `data`, which must not begin inside a delimiter."""
        return iter(()) if self._pattern is None else self._pattern.finditer(data)

    def occurrences(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """Yield the longest delimiter at each position where one begins, in ascending order, even if they overlap.

        The result is a superset of `matches`, and `data` may begin anywhere.
        """
        position = 0
        while self._pattern is not None and (match := self._pattern.search(data, position)):
            yield match
            position = match.start() + 1


def _encode(delimiter: str) -> bytes:
    if not delimiter:
        raise ConfigError("the separator and the special tokens must not be empty strings")
    try:
        return delimiter.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the delimiter {delimiter!r} is not valid Unicode: {error.reason}") from None
