"""Reading a chunk, and turning its bytes into the texts to pre-tokenize."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import starmap, zip_longest
from operator import add
from pathlib import Path

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import Chunk, StreamChunk
from bpeflow.corpus.delimiters import Delimiters, Document
from bpeflow.errors import CorpusError, InvalidUtf8Error

"""What to do with bytes that are not UTF-8: stop; put U+FFFD there, as Python does; or drop the whole document."""


@dataclass(frozen=True, slots=True)
class DocumentStatistics:
    """What a chunk, or by addition a corpus, consists of.

    ``documents``: all of them, empty ones between two separators included; one cut into several chunks counts once, in
    the chunk that holds its end. ``skipped_documents``: those of them dropped for not being UTF-8. ``bytes``: all,
    delimiters and skipped documents included; of records (JSON Lines, Parquet) those of the text that was kept.
    ``sources``: the same for each source, where there are several.
    """

    documents: int = 0
    skipped_documents: int = 0
    bytes: int = 0
    sources: tuple[DocumentStatistics, ...] = ()

    def of_source(self, number: int) -> DocumentStatistics:
        """The same, as those of the source of this number, by which they add up apart."""
        return replace(self, sources=(*[DocumentStatistics()] * number, self))

    def __add__(self, other: DocumentStatistics) -> DocumentStatistics:
        return DocumentStatistics(
            self.documents + other.documents,
            self.skipped_documents + other.skipped_documents,
            self.bytes + other.bytes,
            tuple(starmap(add, zip_longest(self.sources, other.sources, fillvalue=DocumentStatistics()))),
        )


@dataclass(frozen=True, slots=True)
class ChunkTexts:
    """The ``texts`` of a chunk and its ``statistics``.

    A text is valid UTF-8, not empty, and to be pre-tokenized on its own.
    """

    texts: list[bytes]
    statistics: DocumentStatistics


class ChunkBuffer:
    """MemoryBudget for one chunk at a time, the same for all, so that the kernel need not clear new pages for each."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def read(self, chunk: Chunk) -> memoryview:
        """The bytes of a chunk, until the next call.

        CorpusError if the file is gone, or shorter than when the chunk was planned.
        """
        if isinstance(chunk, StreamChunk):
            return memoryview(chunk.data)
        if len(self._memory) < chunk.length:
            self._memory = bytearray(chunk.length)
        data = memoryview(self._memory)[: chunk.length]
        try:
            with Path(chunk.path).open("rb", buffering=0) as stream:
                stream.seek(chunk.offset)
                filled = 0
                while filled < chunk.length and (count := stream.readinto(data[filled:])):
                    filled += count
        except OSError as error:
            raise CorpusError(f"cannot read {chunk.path}: {error.strerror}") from error
        if filled < chunk.length:
            raise CorpusError(
                f"{chunk.path} changed while it was read: it ends before byte {chunk.offset + chunk.length}"
            )
        return data


def decode_chunk(data: bytes, chunk: Chunk, delimiters: Delimiters, invalid_utf8: InvalidUtf8Policy) -> ChunkTexts:
    """The texts between the delimiters in ``data``, the bytes of ``chunk``.

    InvalidUtf8Error, under ``"error"``, names the file and the position in it. CorpusError if ``"skip"`` meets a chunk
    that ends inside a document, whose rest cannot be dropped from here: it was planned to end where a document does
    (``cut_documents=False``), so the file has changed since.
    """
    texts: list[bytes] = []
    documents = skipped = 0
    for document in delimiters.documents(data):
        documents += document.closed or chunk.ends_file
        kept = decode_document(data, document, chunk, invalid_utf8)
        if kept is None:
            skipped += 1
        else:
            texts += filter(None, kept)
    return ChunkTexts(texts, DocumentStatistics(documents, skipped, len(data)))


def decode_document(
    data: bytes, document: Document, chunk: Chunk, invalid_utf8: InvalidUtf8Policy
) -> list[bytes] | None:
    """The text of each piece of ``document`` of the ``data`` of ``chunk``; None if it is to be skipped.

    Raises as `decode_chunk` does.
    """
    if invalid_utf8 == "skip" and not (document.closed or chunk.ends_file):
        end = chunk.offset + chunk.length
        raise CorpusError(
            f"{chunk.path} changed while it was read: no document ends at byte {end:,} any more; run again when it is "
            "complete"
        )
    texts = []
    errors = "replace" if invalid_utf8 == "replace" else "strict"
    try:
        for start, end in document.pieces:
            texts.append(_valid_utf8(data[start:end], errors))
    except UnicodeDecodeError as error:
        if invalid_utf8 == "skip":
            return None
        raise InvalidUtf8Error(
            f"{chunk.path} is not UTF-8 at byte {chunk.offset + start + error.start} ({error.reason}); use "
            "invalid_utf8: replace to put U+FFFD there, or invalid_utf8: skip to leave out such documents"
        ) from None
    return texts


def _valid_utf8(piece: bytes, errors: str) -> bytes:
    """The piece itself if it is valid UTF-8, else what ``errors``, as `bytes.decode` has it, makes of it."""
    if piece.isascii():
        return piece
    text = piece.decode(errors=errors)
    return text.encode() if errors == "replace" else piece
