"""Chunks, in which a corpus is counted or encoded; how documents are found in them, between delimiters; statistics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap, zip_longest
from operator import add
from typing import Any, Literal, NamedTuple

from bpeflow._util.delimiters import Literals, special_bytes
from bpeflow._util.text import format_count
from bpeflow.flow import reduce_out_of_band

#: Ends each record in a chunk of records. The byte never occurs in valid UTF-8, so it cannot be mistaken for text, for
#: a delimiter or for the end of a delimiter.
RECORD_END = b"\xff"


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

    Raises:
        ConfigError: a delimiter is empty or not valid Unicode.
    """

    separator: str | None
    special_tokens: Sequence[str] = ()
    record_end: bytes | None = None

    def __post_init__(self) -> None:
        """Check the delimiters."""
        _ = self.all

    @cached_property
    def all(self) -> tuple[bytes, ...]:
        """The separator and the special tokens as UTF-8, each once, longest first."""
        delimiters = {self.separator_bytes, *map(special_bytes, self.special_tokens)} - {b""}
        return tuple(sorted(delimiters, key=lambda delimiter: (-len(delimiter), delimiter)))

    @cached_property
    def separator_bytes(self) -> bytes:
        """The separator, or what ends records; empty if there is none."""
        return (self.record_end or b"") if self.separator is None else special_bytes(self.separator)

    @property
    def longest(self) -> int:
        """Length of the longest delimiter in bytes; 0 if there is none."""
        return len(self.all[0]) if self.all else 0

    @property
    def separator_index(self) -> int:
        """The index of the separator in `all`; the length of `all` if there is none."""
        return self.all.index(self.separator_bytes) if self.separator_bytes else len(self.all)

    @cached_property
    def literals(self) -> Literals:
        """Finds them: `matches` are removed from a text, which must not begin inside one; `occurrences` may overlap."""
        return Literals(self.all)

    def documents(self, data: bytes) -> Iterator[Document]:
        """Yield the documents of `data`, which must not begin inside a delimiter.

        The text after the last separator is a document only if it is not empty.
        """
        pieces: list[tuple[int, int]] = []
        document_start = piece_start = 0
        for found in self.literals.matches(data):
            pieces.append((piece_start, found.start))
            piece_start = found.end
            if data[found.start : found.end] == self.separator_bytes:
                yield Document(pieces, closed=True)
                pieces, document_start = [], piece_start
        if document_start < len(data):
            pieces.append((piece_start, len(data)))
            yield Document(pieces, closed=False)


@dataclass(frozen=True, slots=True)
class DocumentStatistics:
    """Numbers of documents and bytes, of a chunk or (added up) of a corpus.

    Attributes:
        documents: all documents, including empty ones between two separators. A document that is cut into several
            chunks counts once, in the chunk that contains its end.
        skipped_documents: number of `documents` that were dropped because they are not UTF-8.
        bytes: all bytes, including delimiters and skipped documents. For records (JSON Lines, Parquet), only the bytes
            of the text that was kept.
        sources: the statistics of each source by its number, if there are several; otherwise empty.
        bad_records: records without text that were left out. They are not among `documents`.
        first_bad_record: the error of one of them.
        matched_bytes: bytes of text that a custom pattern matched; 0 for a named pattern, which matches all text.
        unmatched_bytes: bytes of text that it did not match.
        unmatched_example: some of that text, and the text around it; empty if there is none. For messages only, and not
            compared: it depends on which worker finishes first.
    """

    documents: int = 0
    skipped_documents: int = 0
    bytes: int = 0
    sources: tuple[DocumentStatistics, ...] = ()
    bad_records: int = 0
    first_bad_record: str = ""
    matched_bytes: int = 0
    unmatched_bytes: int = 0
    unmatched_example: str = field(default="", compare=False)

    def of_source(self, number: int) -> DocumentStatistics:
        """Return a copy that also records these statistics under one source, so that sources add up separately."""
        return replace(self, sources=(*[DocumentStatistics()] * number, self))

    def __add__(self, other: DocumentStatistics) -> DocumentStatistics:
        return DocumentStatistics(
            self.documents + other.documents,
            self.skipped_documents + other.skipped_documents,
            self.bytes + other.bytes,
            tuple(starmap(add, zip_longest(self.sources, other.sources, fillvalue=DocumentStatistics()))),
            self.bad_records + other.bad_records,
            self.first_bad_record or other.first_bad_record,
            self.matched_bytes + other.matched_bytes,
            self.unmatched_bytes + other.unmatched_bytes,
            self.unmatched_example or other.unmatched_example,
        )

    def log_left_out(self, log: logging.Logger) -> None:
        """Warn of documents and records that were left out."""
        if self.skipped_documents:
            were = "was" if self.skipped_documents == 1 else "were"
            documents = format_count(self.documents, "document")
            log.warning("%s of %s %s skipped: not UTF-8", f"{self.skipped_documents:,}", documents, were)
        if self.bad_records:
            left_out = format_count(self.bad_records, "bad record")
            log.warning("%s left out, such as: %s", left_out, self.first_bad_record.partition(";")[0])


#: No documents.
NOTHING = DocumentStatistics()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file that is counted or encoded at once.

    Attributes:
        path: the file.
        offset: position of the first byte in the file.
        length: number of bytes.
        ends_file: whether these bytes are the last of the file.
        source: number of the source that the file belongs to.
    """

    path: str
    offset: int
    length: int
    ends_file: bool
    source: int = 0

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return self.length


@dataclass(frozen=True, slots=True)
class StreamChunk(Chunk):
    """A chunk of a stream. It carries its bytes, as a stream cannot be read again at an offset.

    Attributes:
        data: text; lines of JSON, one document each; or records, each followed by `RECORD_END`.
        holds: which of the three `data` is.
        line: number of the first line, if `data` is lines of JSON.
        left_out: statistics of the records that are not in `data`, because they are not UTF-8 or have no text.
        bytes_read: bytes read from the file for this chunk, before decompression.
    """

    data: bytearray = field(default_factory=bytearray)
    holds: Literal["text", "jsonl", "records"] = "text"
    line: int = 0
    left_out: DocumentStatistics = NOTHING
    bytes_read: int = 0

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return self.bytes_read

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return reduce_out_of_band(self)
