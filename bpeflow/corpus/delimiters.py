"""The delimiters: the document separator and the special tokens, found and taken out of a corpus's bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bpeflow.errors import ConfigError


class Document(NamedTuple):
    """The pieces of one document, as (start, end) byte positions; ``closed`` if a separator follows it.

    A piece is a run of bytes between delimiters, and may be empty.
    """

    pieces: list[tuple[int, int]]
    closed: bool


@dataclass(frozen=True)
class Delimiters:
    """``separator`` ends a document; a special token only splits the document that it stands in. Neither is counted.

    They are found as UTF-8 bytes, from left to right without overlap, the longest one first where several begin at the
    same place. A special token equal to the separator is the separator; doubles count once; without delimiters all is
    one piece. ConfigError for an empty delimiter.

    >>> list(Delimiters("||", ["<s>"]).documents(b"a<s>b||c"))
    [Document(pieces=[(0, 1), (4, 5)], closed=True), Document(pieces=[(7, 8)], closed=False)]
    """

    separator: str | None
    special_tokens: Sequence[str] = ()
    record_end: bytes | None = None
    """In place of a separator: bytes that are no UTF-8, behind each document of text that is made of records."""
    all: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """The separator and the special tokens, each once, the longest first."""
    longest: int = field(init=False, repr=False, compare=False)
    """Bytes of the longest delimiter, 0 if there is none."""
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
        """The separator; no bytes if there is none."""
        return self._separator or b""

    @property
    def separator_index(self) -> int:
        """The place of the separator in `all`; the length of `all` if there is none."""
        return len(self.all) if self._separator is None else self.all.index(self._separator)

    def documents(self, data: bytes) -> Iterator[Document]:
        """The documents of ``data``, which begins between two delimiters. The last is left out if it is empty."""
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
        """Whether a match is the document separator."""
        return match.group() == self._separator

    def matches(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """The delimiters of ``data``, which begins between two of them: what is taken out."""
        return iter(()) if self._pattern is None else self._pattern.finditer(data)

    def occurrences(self, data: bytes) -> Iterator[re.Match[bytes]]:
        """The longest delimiter at every position where one's bytes stand, in ascending order, overlapping ones too.

        A superset of `matches` that holds wherever ``data`` begins.
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
