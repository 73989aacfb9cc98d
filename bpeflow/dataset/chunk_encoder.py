"""The encoder stage: chunks of a corpus in, their ids out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import RECORD_END, Chunk, StreamChunk
from bpeflow.corpus.delimiters import Delimiters, Document
from bpeflow.corpus.documents import ChunkBuffer, DocumentStatistics, decode_document
from bpeflow.corpus.formats.jsonl import parse_lines
from bpeflow.corpus.formats.records import Records
from bpeflow.corpus.formats.stdin import CancelledError
from bpeflow.corpus.sources import Source
from bpeflow.dataset.token_file import Ids
from bpeflow.errors import InvalidTextError
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.tokenizer import BaseTokenizer

CHUNKS_AHEAD = 2


"""Chunks under way for each thread: one that it encodes, and one whose ids wait for those before them. More smooth out
chunks that take unequally long; fewer save memory."""


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk and its place among the chunks of the corpus, counted from 0."""

    number: int
    chunk: Chunk

    @property
    def length(self) -> int:
        """Its bytes."""
        return self.chunk.length


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The ids of a chunk.

    Attributes:
        number: the place of the chunk among the chunks of the corpus.
        ids: 1-dimensional.
        ends: how many of the ids stand before the end of each document that ends in the chunk, ascending; its end token
            is among them. Skipped documents are not.
        statistics: what the chunk consisted of.
        weight: how much of the corpus the chunk was, by the sizes of files.
    """

    number: int
    ids: Ids
    ends: NDArray[np.int64]
    statistics: DocumentStatistics
    weight: int = 0


@dataclass(frozen=True)
class ChunkEncoder:
    """What each encoder worker runs: a stage function, picklable, which yields in the order of its inputs.

    What it yields for the chunks of a document together: the ids that `Tokenizer.encode` gives of the document, where
    the special tokens among the delimiters are allowed and others are ordinary text; and the end token, if there is
    one.

    Attributes:
        tokenizer: what encodes.
        delimiters: the separator, and those special tokens that are not text; no chunk divides one.
        end_id: the id that ends a document; None for none.
        invalid_utf8: what to do with input that is not UTF-8.
        source: for records, where their text is.
        threads: how many of them encode; for encoders that leave the interpreter to others while they are at work.
        cancelled: is set when one of the threads has failed, for those who wait for input.
    """

    tokenizer: BaseTokenizer
    delimiters: Delimiters
    end_id: int | None
    invalid_utf8: InvalidUtf8Policy
    source: Source = field(default_factory=Source)
    threads: int = 1
    cancelled: Event | None = None

    def __call__(self, chunks: Iterable[NumberedChunk]) -> Iterator[EncodedChunk]:
        if self.threads == 1:
            buffer = ChunkBuffer()
            for chunk in chunks:
                yield self.encode(chunk, buffer)
            return
        buffers = deque(ChunkBuffer() for _ in range(self.threads))  # whose ends are safe to use from any thread

        def encode(chunk: NumberedChunk) -> EncodedChunk:
            buffer = buffers.pop()
            try:
                return self.encode(chunk, buffer)
            except BaseException:
                if self.cancelled is not None:
                    self.cancelled.set()
                raise
            finally:
                buffers.append(buffer)

        _ = self._marking  # made once, not by each thread
        under_way: deque[Future[EncodedChunk]] = deque()
        with ThreadPoolExecutor(self.threads, "encoder") as pool:
            try:
                with suppress(CancelledError):
                    for chunk in chunks:
                        under_way.append(pool.submit(encode, chunk))
                        if len(under_way) == self.threads * CHUNKS_AHEAD:
                            yield under_way.popleft().result()
                while under_way:
                    yield under_way.popleft().result()
            finally:  # after a failure, or Ctrl-C, the threads end with the chunk that they have
                pool.shutdown(wait=False, cancel_futures=True)

    def encode(self, numbered: NumberedChunk, buffer: ChunkBuffer) -> EncodedChunk:
        """Read and encode a chunk. Raises `CorpusError`, which names the file."""
        encoded = self.encode_text(buffer.read(numbered.chunk), numbered)
        return replace(encoded, weight=numbered.chunk.weight)

    def encode_text(self, data: memoryview, numbered: NumberedChunk) -> EncodedChunk:
        """Encode the text of a chunk: all at once where that can be done, else document by document.

        Raises `InvalidUtf8Error`, which names the file and the place.
        """
        if isinstance(numbered.chunk, StreamChunk) and numbered.chunk.holds != "text":
            return self._encode_records(numbered.chunk, numbered.number)
        if self._at_once:
            try:
                return self._encode_at_once(data, numbered)
            except InvalidTextError:
                pass
        return self._encode_documents(bytes(data), numbered, self.delimiters, self._marking)

    def _encode_records(self, chunk: StreamChunk, number: int) -> EncodedChunk:
        """Encode the records of a chunk. A separator that is no special token is ordinary text in them."""
        records = Records(chunk.data, chunk.skipped)
        if chunk.holds == "jsonl":
            records = parse_lines(chunk, self.source.text_field, self.invalid_utf8)
        specials = {token: self.tokenizer.special_tokens[token] for token in self.delimiters.special_tokens}
        delimiters = Delimiters(None, [*specials], RECORD_END)
        text = NumberedChunk(number, replace(chunk, length=len(records.data)))
        encoded = self._encode_documents(bytes(records.data), text, delimiters, SpecialTokens.of(specials))
        documents = encoded.statistics.documents
        statistics = DocumentStatistics(documents + records.skipped, records.skipped, len(records.data) - documents)
        return replace(encoded, statistics=statistics)

    def _encode_at_once(self, data: memoryview, numbered: NumberedChunk) -> EncodedChunk:
        """Encode as one text, in which the separator is a special token with an id of its own, the mark.

        With the named patterns no text is without tokens, so a document is open if any id stands behind the last mark.
        """
        ids = self._encoder.encode_to_array(data, self._marking, self._dtype)
        marks = np.flatnonzero(ids == self._mark)
        is_open = len(ids) > 0 and (not len(marks) or marks[-1] != len(ids) - 1)
        if is_open and numbered.chunk.ends_file:
            ids = np.append(ids, ids.dtype.type(self._mark))
            marks = np.append(marks, len(ids) - 1)
        if self.end_id is None:
            ids = np.delete(ids, marks)
            ends = marks - np.arange(len(marks))
        else:
            ids[marks] = self.end_id
            ends = marks + 1
        statistics = DocumentStatistics(len(ends), 0, len(data))
        return EncodedChunk(numbered.number, ids, ends.astype(np.int64, copy=False), statistics)

    def _encode_documents(
        self, data: bytes, numbered: NumberedChunk, delimiters: Delimiters, marking: SpecialTokens
    ) -> EncodedChunk:
        """The definition, which also does what is not UTF-8."""
        chunk = numbered.chunk
        parts: list[NDArray[Any]] = []
        ends = []
        length = documents = skipped = 0
        for document in delimiters.documents(data):
            complete = document.closed or chunk.ends_file
            documents += complete
            texts = decode_document(data, document, chunk, self.invalid_utf8)
            if texts is None:
                skipped += 1
                continue
            encoded = [*self._encode_document(data, document, texts, marking)]
            if complete and self.end_id is not None:
                encoded.append(np.array([self.end_id], self._dtype))
            parts += encoded
            length += sum(map(len, encoded))
            if complete:
                ends.append(length)
        ids = np.concatenate(parts) if parts else np.empty(0, self._dtype)
        statistics = DocumentStatistics(documents, skipped, len(data))
        return EncodedChunk(numbered.number, ids, np.array(ends, np.int64), statistics)

    def _encode_document(
        self, data: bytes, document: Document, texts: list[bytes], marking: SpecialTokens
    ) -> Iterator[NDArray[Any]]:
        """The ids of a document's texts, and of the special tokens that stand between them."""
        before = None
        for (start, end), text in zip(document.pieces, texts, strict=True):
            if before is not None:
                yield np.array([marking.ids[data[before:start]]], self._dtype)
            if text:
                yield self._encoder.encode_to_array(text, NO_SPECIAL_TOKENS, self._dtype)
            before = end

    @property
    def _encoder(self) -> Encoder:
        return self.tokenizer._encoder

    @cached_property
    def _at_once(self) -> bool:
        return not load_pretokenizer(self.tokenizer.pattern).custom

    @property
    def _mark(self) -> int:
        return self.tokenizer.vocab_size

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint16 if self._mark < 1 << 16 else np.uint32)

    @cached_property
    def _marking(self) -> SpecialTokens:
        """The special tokens that are not text, and the separator as the mark."""
        specials = self.tokenizer.special_tokens
        ids = {token: specials[token] for token in self.delimiters.special_tokens}
        if self.delimiters.separator is not None:
            ids[self.delimiters.separator] = self._mark
        return SpecialTokens.of(ids)
