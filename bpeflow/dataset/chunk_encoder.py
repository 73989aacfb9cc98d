"""`ChunkEncoder`: the stage of the pipeline that turns chunks of a corpus into ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpeflow.corpus.documents import Chunk, Document, DocumentStatistics
from bpeflow.corpus.open_chunk import ChunkBuffer, OpenChunk, open_chunk
from bpeflow.corpus.text_rules import TextRules
from bpeflow.dataset.token_file import Ids
from bpeflow.errors import InvalidTextError, UnmatchedTextError
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.validate import smallest_dtype

#: The text that a chunk has after its last separator.
Rest = Literal["none", "blank", "text"]


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The ids of a chunk.

    Attributes:
        ids: the ids, one-dimensional.
        ends: for each document that a separator ends in the chunk, the position in `ids` after its last id (its end
            token, if there is one), ascending. Skipped documents have no entry.
        rest: the text after the last separator: none, white space only, or other text.
        ends_file: whether the chunk is the last of its file.
        statistics: statistics of the chunk, whose number of documents means nothing.
        weight: the chunk's share of the corpus, in bytes of its files.
    """

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
    their ids. Other special tokens are ordinary text, and so is, in records, a separator that is not a special token.

    Attributes:
        tokenizer: the tokenizer.
        rules: how text becomes the tokenizer's pre-tokens, with `keep_separator`. Its delimiters are the separator, and
            the special tokens that are not ordinary text.
        end_id: the id in place of a separator, or None.
    """

    tokenizer: Tokenizer
    rules: TextRules
    end_id: int | None

    def __call__(self, chunks: Iterable[tuple[int, Chunk]]) -> Iterator[tuple[int, EncodedChunk]]:
        """Encode chunks. Each has its number among the chunks of the corpus."""
        buffer = ChunkBuffer()
        for number, chunk in chunks:
            yield number, self.encode(chunk, buffer)

    def encode(self, chunk: Chunk, buffer: ChunkBuffer) -> EncodedChunk:
        """Read and encode a chunk.

        Raises `CorpusError`, with the file, if it is unreadable, has changed, or is not UTF-8.
        """
        return replace(self.encode_text(open_chunk(chunk, self.rules, buffer)), weight=chunk.weight)

    def encode_text(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the text of a chunk: in one call if possible, else document by document.

        With a normalizer, only text in ASCII is encoded in one call.

        Raises `InvalidUtf8Error`, with the file and position.
        """
        pretokenizer = self.rules.pretokenizer
        can_encode_at_once = not (pretokenizer.custom or opened.has_records)  # the pattern must match all text
        if can_encode_at_once and pretokenizer.normalizer.keeps_ascii(bytes(opened.data)):
            try:
                return self._encode_at_once(opened)
            except InvalidTextError:
                pass
        return self._encode_documents(opened)

    def _encode_at_once(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the chunk as one text in which the separator is a special token with a separate id, the mark."""
        ids = self._encoder.encode_to_array(opened.data, self._marking, self._dtype)
        marks = np.flatnonzero(ids == self._mark)
        rest = self._rest_of(ids[marks[-1] + 1 :] if len(marks) else ids)
        if self.end_id is None:
            ids = np.delete(ids, marks)
            ends = marks - np.arange(len(marks))
        else:
            ids[marks] = self.end_id
            ends = marks + 1
        ends = ends.astype(np.int64, copy=False)
        return EncodedChunk(ids, ends, rest, opened.chunk.ends_file, opened.statistics(0, 0))

    def _rest_of(self, ids: NDArray[Any]) -> Rest:
        """Describe the text of the ids after the last separator. All text has ids, as the pattern matches all of it."""
        if not len(ids):
            return "none"
        return "blank" if all(self.tokenizer.decode_bytes([int(i)]).isspace() for i in ids) else "text"

    def _encode_documents(self, opened: OpenChunk) -> EncodedChunk:
        """Encode document by document. This is the definition, and it also handles input that is not UTF-8."""
        data = bytes(opened.data)
        parts: list[NDArray[Any]] = []
        ends = []
        length = documents = skipped = 0
        rest: Rest = "none"
        for document, texts in opened.documents():
            documents += 1
            if texts is None:
                skipped += 1
                continue
            try:
                encoded = [*self._encode_document(data, document, texts)]
            except UnmatchedTextError:
                raise opened.unmatched_error() from None
            if document.closed and self.end_id is not None:
                encoded.append(np.array([self.end_id], self._dtype))
            parts += encoded
            length += sum(map(len, encoded))
            if document.closed:
                ends.append(length)
            else:
                rest = "blank" if data[document.pieces[0][0] :].isspace() else "text"
        ids = np.concatenate(parts) if parts else np.empty(0, self._dtype)
        ends_file = opened.has_records or opened.chunk.ends_file
        statistics = opened.statistics(documents, skipped)
        return EncodedChunk(ids, np.array(ends, np.int64), rest, ends_file, statistics)

    def _encode_document(self, data: bytes, document: Document, texts: list[bytes]) -> Iterator[NDArray[Any]]:
        """Yield the ids of a document's texts, and of the special tokens between them."""
        previous_end = None
        for (start, end), text in zip(document.pieces, texts, strict=True):
            if previous_end is not None:
                yield np.array([self.tokenizer.special_tokens[data[previous_end:start].decode()]], self._dtype)
            if text:
                yield self._encoder.encode_to_array(text, NO_SPECIAL_TOKENS, self._dtype)
            previous_end = end

    @property
    def _encoder(self) -> Encoder:
        return self.tokenizer._encoder

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
        ids = {token: specials[token] for token in self.rules.delimiters.special_tokens}
        if self.rules.delimiters.separator is not None:
            ids[self.rules.delimiters.separator] = self._mark
        return SpecialTokens.of(ids)
