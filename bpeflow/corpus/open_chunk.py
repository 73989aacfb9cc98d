"""`open_chunk`: the one way from a chunk, whatever it holds, to its documents."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bpeflow.corpus.documents import NOTHING, Chunk, Delimiters, Document, DocumentStatistics, StreamChunk
from bpeflow.corpus.files import records
from bpeflow.corpus.text_rules import UTF8_REMEDY, TextRules
from bpeflow.errors import CorpusError, InvalidUtf8Error, PatternTimeoutError

#: Bytes of a chunk that are searched for a NUL, which text has none of.
_LOOKED_AT = 8_192


class ChunkBuffer:
    """A buffer that holds one chunk at a time. Reusing it saves the kernel from clearing new pages for each chunk."""

    def __init__(self) -> None:
        self._memory: bytearray | mmap.mmap = bytearray()

    def read(self, chunk: Chunk) -> memoryview:
        """Return the bytes of a chunk of a file, which stay valid until the next call.

        Raises:
            CorpusError: the file cannot be read, or is shorter than when the chunk was planned.
        """
        if len(self._memory) < chunk.length:
            size = chunk.length + chunk.length // 8  # the next chunk may be longer; unused pages take no memory
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        data = memoryview(self._memory)[: chunk.length]
        try:
            with Path(chunk.path).open("rb") as stream:
                stream.seek(chunk.offset)
                filled = stream.readinto(data)
        except OSError as error:
            raise CorpusError(f"cannot read {chunk.path}: {error.strerror}") from error
        if filled < chunk.length:
            raise CorpusError(
                f"{chunk.path} changed while it was read: it ends before byte {chunk.offset + chunk.length}"
            )
        return data


@dataclass(frozen=True)
class OpenChunk:
    """The content of a chunk: its documents between delimiters.

    Attributes:
        chunk: the chunk.
        rules: how its text becomes documents and pre-tokens.
        data: the text; of records, the documents, each followed by `RECORD_END`.
        delimiters: the delimiters in `data`.
        offset: position of `data` in the file; for records, in the text of all documents.
        left_out: statistics of the records that are not in `data`.
    """

    chunk: Chunk
    rules: TextRules
    data: memoryview
    delimiters: Delimiters
    offset: int
    left_out: DocumentStatistics = NOTHING

    @property
    def has_records(self) -> bool:
        """Whether the documents are records."""
        return self.delimiters.record_end is not None

    def after(self, position: int) -> OpenChunk:
        """Return the rest of the chunk from a byte of `data` on, where a document must begin."""
        return replace(self, data=self.data[position:], offset=self.offset + position)

    def documents(self) -> Iterator[tuple[Document, list[bytes] | None]]:
        """Yield each document with the text of each of its pieces, in valid UTF-8; None if the document is skipped.

        Raises:
            InvalidUtf8Error: the policy is ``"error"`` and a document is not UTF-8. The message names file and byte.
            CorpusError: the policy is ``"skip"`` and the chunk ends inside a document, whose rest cannot be dropped
                from here. Under ``"skip"``, chunks are planned to end where documents end: the file has changed since.
        """
        data = bytes(self.data)
        for document in self.delimiters.documents(data):
            yield document, self._texts(data, document)

    def _texts(self, data: bytes, document: Document) -> list[bytes] | None:
        chunk, policy = self.chunk, self.rules.invalid_utf8
        if policy == "skip" and not (document.closed or chunk.ends_file):
            raise CorpusError(
                f"{chunk.path} changed while it was read: no document ends at byte {self.offset + len(data):,} any "
                "more; run again when it is complete"
            )
        texts = []
        try:
            for start, end in document.pieces:
                texts.append(_valid_utf8(data[start:end], "replace" if policy == "replace" else "strict"))
        except UnicodeDecodeError as error:
            if policy == "skip":
                return None
            is_binary = b"\0" in bytes(self.data[:_LOOKED_AT])
            remedy = "it looks binary: exclude it" if is_binary else "convert it (iconv -f ENCODING -t UTF-8)"
            position = self.offset + start + error.start
            raise InvalidUtf8Error(
                f"{chunk.path} is not UTF-8 at byte {position} ({error.reason}); {remedy}, or {UTF8_REMEDY}"
            ) from None
        return texts

    def statistics(self, documents: int, skipped: int) -> DocumentStatistics:
        """Return the statistics of the chunk, given how many documents `data` has and how many are skipped."""
        size = len(self.data) - (documents if self.has_records else 0)  # a `RECORD_END` each
        return DocumentStatistics(documents, skipped, size) + self.left_out

    def unmatched_error(self) -> CorpusError:
        """Return the error for the first text that the pattern does not match, with its file and position."""
        pretokenizer = self.rules.pretokenizer
        for number, (document, texts) in enumerate(self.documents()):
            for (start, _), text in zip(document.pieces, texts or (), strict=False):
                if unmatched := pretokenizer.find_unmatched_before_normalizing(text.decode()):
                    position = start + len(text.decode()[: unmatched.start].encode())
                    place = self._place(number, position)
                    return CorpusError(f"{self.chunk.path}: {pretokenizer.describe(unmatched, place)}")
        return CorpusError(f"{self.chunk.path}: the pattern {pretokenizer.regex!r} does not match all text")

    def timeout_error(self, error: PatternTimeoutError, number: int, document: Document) -> PatternTimeoutError:
        """Return the error for a document, given its index, on which the pattern took too long, with its position."""
        return PatternTimeoutError(f"{self.chunk.path}: {self._place(number, document.pieces[0][0])}: {error}")

    def _place(self, document: int, position: int) -> str:
        if not self.has_records:
            return f"byte {self.offset + position:,}"
        chunk = self.chunk
        if not isinstance(chunk, StreamChunk) or chunk.holds == "records":
            return f"byte {self.offset + position - document:,} of its documents' text"
        lines = [number for number, text in records().parse_lines(chunk, self.rules) if isinstance(text, bytes)]
        return f"line {lines[document]:,}"


def _valid_utf8(piece: bytes, errors: str) -> bytes:
    """Return the piece if it is valid UTF-8; otherwise handle `errors` as `bytes.decode` does."""
    if piece.isascii():
        return piece
    text = piece.decode(errors=errors)
    return text.encode() if errors == "replace" else piece


def open_chunk(chunk: Chunk, rules: TextRules, buffer: ChunkBuffer | None = None) -> OpenChunk:
    """Return the content of a chunk. Reads files and parses lines of JSON.

    Args:
        chunk: the chunk.
        rules: how its text becomes documents and pre-tokens.
        buffer: where to read chunks of files. The content of the chunk before it becomes invalid.

    Raises:
        CorpusError: the file cannot be read, or is shorter than when the chunk was planned.
        BadRecordError: under ``bad_records: error``, a line has no text. The message gives the number of the line.
        InvalidUtf8Error: under ``invalid_utf8: error``, a line is not UTF-8. The message gives the number of the line.
    """
    if not isinstance(chunk, StreamChunk):
        return OpenChunk(chunk, rules, (buffer or ChunkBuffer()).read(chunk), rules.delimiters, chunk.offset)
    data, left_out = chunk.data, chunk.left_out
    if chunk.holds == "jsonl":
        lines = records().gather_lines(chunk, rules)
        data, left_out = lines.data, lines.left_out
    delimiters = rules.delimiters if chunk.holds == "text" else rules.record_delimiters
    return OpenChunk(chunk, rules, memoryview(data), delimiters, chunk.offset, left_out)
