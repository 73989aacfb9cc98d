"""`ChunkEncoder`: the stage of the pipeline that turns chunks of a corpus into ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import RECORD_END, Chunk, StreamChunk
from bpeflow.corpus.documents import ChunkBuffer, Delimiters, Document, DocumentStatistics, decode_document
from bpeflow.corpus.formats.jsonl import read_records
from bpeflow.corpus.left_out import unmatched_error
from bpeflow.corpus.sources import Source
from bpeflow.dataset.token_file import Ids
from bpeflow.errors import InvalidTextError, UnmatchedTextError
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.validate import smallest_dtype

#: The text that a chunk has after its last separator.
Rest = Literal["none", "blank", "text"]


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk and its index among the chunks of the corpus."""

    number: int
    chunk: Chunk

    @property
    def length(self) -> int:
        """The length of the chunk in bytes."""
        return self.chunk.length


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The ids of a chunk.

    Attributes:
        number: the index of the chunk among the chunks of the corpus.
        ids: the ids, one-dimensional.
        ends: for each document that a separator ends in the chunk, the position in `ids` after its last id (its end
            token, if there is one), ascending. Skipped documents have no entry.
        rest: the text after the last separator: none, white space only, or other text.
        ends_file: whether the chunk is the last of its file.
        statistics: statistics of the chunk. Of its documents, only skipped ones are counted.
        weight: the chunk's share of the corpus, in bytes of its files.
    """

    number: int
    ids: Ids
    ends: NDArray[np.int64]
    rest: Rest
    ends_file: bool
    statistics: DocumentStatistics
    weight: int = 0


@dataclass(frozen=True)
class ChunkEncoder:
    """The picklable stage function of the encoder workers. It yields results in the order of its inputs.

    The ids of all chunks of a document, joined, equal `Tokenizer.encode` of the document. The
    separator that ends it becomes the end token, or is left out. The special tokens among the delimiters are encoded as
    their ids. Other special tokens are ordinary text.

    Attributes:
        tokenizer: the tokenizer.
        delimiters: the separator, and the special tokens that are not ordinary text. No chunk boundary is inside one.
        end_id: the id in place of a separator, or None.
        invalid_utf8: what to do with input that is not UTF-8.
        sources: the sources by their numbers, with the fields that hold the text of records.
    """

    tokenizer: Tokenizer
    delimiters: Delimiters
    end_id: int | None
    invalid_utf8: InvalidUtf8Policy
    sources: Sequence[Source] = (Source(),)

    def __call__(self, chunks: Iterable[NumberedChunk]) -> Iterator[EncodedChunk]:
        """Encode chunks."""
        buffer = ChunkBuffer()
        for chunk in chunks:
            yield self.encode(chunk, buffer)

    def encode(self, numbered: NumberedChunk, buffer: ChunkBuffer) -> EncodedChunk:
        """Read and encode a chunk.

        Raises `CorpusError`, with the file, if it is unreadable, has changed, or is not UTF-8.
        """
        encoded = self.encode_text(buffer.read(numbered.chunk), numbered)
        return replace(encoded, weight=numbered.chunk.weight)

    def encode_text(self, data: memoryview, numbered: NumberedChunk) -> EncodedChunk:
        """Encode the text of a chunk: in one call if possible, else document by document.

        With a normalizer, only text in ASCII is encoded in one call.

        Raises `InvalidUtf8Error`, with the file and position.
        """
        if isinstance(numbered.chunk, StreamChunk) and numbered.chunk.holds != "text":
            return self._encode_records(numbered.chunk, numbered.number)
        normalizer = self.tokenizer._pretokenizer.normalizer
        if self._can_encode_at_once and (not normalizer or normalizer.keeps_ascii(bytes(data))):
            try:
                return self._encode_at_once(data, numbered)
            except InvalidTextError:
                pass
        return self._encode_documents(bytes(data), numbered, self.delimiters, self._marking)

    def _encode_records(self, chunk: StreamChunk, number: int) -> EncodedChunk:
        """Encode the records of a chunk. In records, a separator that is not a special token is ordinary text."""
        source = self.sources[chunk.source]
        records = read_records(chunk, source.text_field, self.invalid_utf8, source.bad_records)
        specials = {token: self.tokenizer.special_tokens[token] for token in self.delimiters.special_tokens}
        delimiters = Delimiters(None, [*specials], RECORD_END)
        text = NumberedChunk(number, replace(chunk, length=len(records.data)))
        encoded = self._encode_documents(bytes(records.data), text, delimiters, SpecialTokens.of(specials))
        statistics = DocumentStatistics(
            skipped_documents=records.skipped,
            bytes=len(records.data) - len(encoded.ends),
            bad_records=records.bad_records,
            first_bad_record=records.first_bad_record,
        )
        return replace(encoded, ends_file=True, statistics=statistics)

    def _encode_at_once(self, data: memoryview, numbered: NumberedChunk) -> EncodedChunk:
        """Encode the chunk as one text in which the separator is a special token with a separate id, the mark."""
        ids = self._encoder.encode_to_array(data, self._marking, self._dtype)
        marks = np.flatnonzero(ids == self._mark)
        rest = self._rest_of(ids[marks[-1] + 1 :] if len(marks) else ids)
        if self.end_id is None:
            ids = np.delete(ids, marks)
            ends = marks - np.arange(len(marks))
        else:
            ids[marks] = self.end_id
            ends = marks + 1
        statistics = DocumentStatistics(bytes=len(data))
        ends = ends.astype(np.int64, copy=False)
        return EncodedChunk(numbered.number, ids, ends, rest, numbered.chunk.ends_file, statistics)

    def _rest_of(self, ids: NDArray[Any]) -> Rest:
        """Describe the text of the ids after the last separator. All text has ids, as the pattern matches all of it."""
        if not len(ids):
            return "none"
        return "blank" if all(self.tokenizer.decode_bytes([int(i)]).isspace() for i in ids) else "text"

    def _encode_documents(
        self, data: bytes, numbered: NumberedChunk, delimiters: Delimiters, marking: SpecialTokens
    ) -> EncodedChunk:
        """Encode document by document. This is the definition, and it also handles input that is not UTF-8."""
        chunk = numbered.chunk
        parts: list[NDArray[Any]] = []
        ends = []
        length = skipped = 0
        rest: Rest = "none"
        for document in delimiters.documents(data):
            texts = decode_document(data, document, chunk, self.invalid_utf8)
            if texts is None:
                skipped += 1
                continue
            try:
                encoded = [*self._encode_document(data, document, texts, marking)]
            except UnmatchedTextError:
                pretokenizer, field = self.tokenizer._pretokenizer, self.sources[chunk.source].text_field
                raise unmatched_error(data, chunk, delimiters, pretokenizer, self.invalid_utf8, field) from None
            if document.closed and self.end_id is not None:
                encoded.append(np.array([self.end_id], self._dtype))
            parts += encoded
            length += sum(map(len, encoded))
            if document.closed:
                ends.append(length)
            else:
                rest = "blank" if data[document.pieces[0][0] :].isspace() else "text"
        ids = np.concatenate(parts) if parts else np.empty(0, self._dtype)
        statistics = DocumentStatistics(skipped_documents=skipped, bytes=len(data))
        return EncodedChunk(numbered.number, ids, np.array(ends, np.int64), rest, chunk.ends_file, statistics)

    def _encode_document(
        self, data: bytes, document: Document, texts: list[bytes], marking: SpecialTokens
    ) -> Iterator[NDArray[Any]]:
        """Yield the ids of a document's texts, and of the special tokens between them."""
        previous_end = None
        for (start, end), text in zip(document.pieces, texts, strict=True):
            if previous_end is not None:
                yield np.array([marking.ids[data[previous_end:start]]], self._dtype)
            if text:
                yield self._encoder.encode_to_array(text, NO_SPECIAL_TOKENS, self._dtype)
            previous_end = end

    @property
    def _encoder(self) -> Encoder:
        return self.tokenizer._encoder

    @cached_property
    def _can_encode_at_once(self) -> bool:
        """Whether chunks can be encoded in one call, which needs a pattern that matches all text."""
        return not self.tokenizer._pretokenizer.custom

    @property
    def _mark(self) -> int:
        """An id outside the vocabulary, for separators."""
        return self.tokenizer.vocab_size

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        return smallest_dtype(self._mark + 1)

    @cached_property
    def _marking(self) -> SpecialTokens:
        """The special tokens that are not ordinary text, and the separator with the id of the mark."""
        specials = self.tokenizer.special_tokens
        ids = {token: specials[token] for token in self.delimiters.special_tokens}
        if self.delimiters.separator is not None:
            ids[self.delimiters.separator] = self._mark
        return SpecialTokens.of(ids)
