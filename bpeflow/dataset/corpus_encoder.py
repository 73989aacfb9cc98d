"""The pipeline that reads and encodes a corpus in chunks on all cores: `CorpusEncoder`.

`ChunkEncoder` turns a chunk into ids, and `ChunkJoiner` joins the ids of chunks into documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpeflow import flow
from bpeflow.corpus.checks import FirstLook
from bpeflow.corpus.documents import RECORD_END, Chunk, Document, DocumentStatistics
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.open_chunk import ChunkBuffer, OpenChunk, open_chunk
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import Corpus
from bpeflow.corpus.text_rules import TextRules
from bpeflow.dataset.token_file import Ids
from bpeflow.dataset.token_writer import TokenSetWriter
from bpeflow.errors import InvalidTextError, PatternTimeoutError, UnmatchedTextError
from bpeflow.flow import Pipeline, QueueSpec, Stage, in_order, stall_watch
from bpeflow.pretokenize.native import why_not_compiled
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.tokenizer.validate import smallest_dtype

#: Approximate size of chunks, in bytes of text. Larger: fewer hand-overs between workers. Smaller: less memory, and
#: more parallelism for small corpora.
CHUNK_SIZE = {"threads": 4_000_000, "processes": 1_000_000}

#: Corpora of up to this many bytes are encoded without worker processes. Larger: more corpora are encoded on one core.
#: Smaller: more runs pay for starting processes, which takes longer than encoding.
SMALL_INPUT = 4_000_000

#: Chunks in the queue for each encoder. More: more encoded chunks accumulate in memory while one that takes long is
#: being encoded. Fewer: encoders wait for the reader, which also writes, or for an encoder whose turn it is (with 2,
#: two encoders waited a fifth of the time).
_CHUNKS_PER_WORKER = 4

#: Bytes of records that are encoded as a batch of `str`, which may take four times as much memory. Larger: more memory
#: for long records. Smaller: more chunks are encoded record by record, which takes longer if records are short.
_LARGEST_BATCH = 64_000_000

#: What happens to end-of-text strings that are no special tokens of the tokenizer.
_END_OF_TEXT = "no special tokens of this tokenizer, so encoded as ordinary text"


class Place(NamedTuple):
    """A place in a corpus, between two chunks.

    Attributes:
        entry: the index of a file or stream in the corpus.
        chunks: number of its chunks before this place.
    """

    entry: int = 0
    chunks: int = 0


#: The beginning of a corpus.
BEGIN = Place()


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The ids of a chunk.

    Attributes:
        ids: the ids, one-dimensional.
        ends: for each document that a separator ends in the chunk, the position in `ids` after its last id (its end
            token, if there is one), ascending. Skipped documents have no entry.
        open: whether text follows the last separator, so that a document has not ended.
        ends_file: whether the chunk is the last of its file.
        statistics: statistics of the chunk. Its number of documents is meaningless.
        weight: the chunk's share of the corpus, in bytes of its files.
        place: the place after the chunk.
    """

    ids: Ids
    ends: NDArray[np.int64]
    open: bool
    ends_file: bool
    statistics: DocumentStatistics
    weight: int
    place: Place = BEGIN


@dataclass(frozen=True)
class ChunkEncoder:
    """The stage function of the encoder workers. It yields results in the order of its inputs.

    The ids of all chunks of a document, joined, equal `Tokenizer.encode` of the document. The
    separator that ends it becomes the end token, or is left out. The special tokens among the delimiters are encoded as
    their ids. Other special tokens are ordinary text, and so is, in records, a separator that is not a special token.

    Attributes:
        rules: how text becomes the tokenizer's pre-tokens, with `keep_separator`.
        end_id: the id in place of a separator, or None.
    """

    tokenizer: Tokenizer
    rules: TextRules
    end_id: int | None

    def __call__(self, chunks: Iterable[tuple[int, Place, Chunk]]) -> Iterator[tuple[int, Place, EncodedChunk]]:
        """Encode chunks. Each has its number among all chunks, and the place after it."""
        buffer = ChunkBuffer()
        for number, place, chunk in chunks:
            yield number, place, self.encode(chunk, buffer)

    def encode(self, chunk: Chunk, buffer: ChunkBuffer) -> EncodedChunk:
        """Read and encode a chunk.

        Raises `CorpusError`, with the file, if it is unreadable, has changed, or is not UTF-8.
        """
        return self.encode_text(open_chunk(chunk, self.rules, buffer))

    def encode_text(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the text of a chunk: in one call if possible, else document by document.

        Raises `InvalidUtf8Error`, with the file and position.
        """
        pretokenizer = self.rules.pretokenizer
        drops = pretokenizer.custom and pretokenizer.unmatched == "drop"  # then not all text has ids
        with suppress(UnicodeDecodeError, InvalidTextError, PatternTimeoutError):  # the error is to name the document
            if opened.has_records and len(opened.data) <= _LARGEST_BATCH:
                return self._encode_records(opened)
            if not (drops or opened.has_records):
                return self._encode_at_once(opened)
        return self._encode_documents(opened)

    def _encode_records(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the records of a chunk as a batch of texts."""
        texts = [*map(bytes.decode, bytes(opened.data).split(RECORD_END)[:-1])]
        ids, ends = self._encoder.encode_batch(texts, self._specials, self._dtype)
        if self.end_id is not None:
            ids, ends = np.insert(ids, ends, self.end_id), ends + np.arange(1, len(ends) + 1)
        return EncodedChunk(ids, ends, False, True, opened.statistics(len(texts), 0), opened.chunk.weight)

    def _encode_at_once(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the chunk as one text in which the separator is a special token with a separate id, the mark."""
        ids = self._encoder.encode_to_array(opened.data, self._marking, self._dtype)
        marks = np.flatnonzero(ids == self._mark)
        is_open = bool((ids[-1:] != self._mark).any())
        if self.end_id is None:
            ids, ends = np.delete(ids, marks), marks - np.arange(len(marks))
        else:
            ids[marks] = self.end_id
            ends = marks + 1
        chunk = opened.chunk
        return EncodedChunk(ids, ends, is_open, chunk.ends_file, opened.statistics(0, 0), chunk.weight)

    def _encode_documents(self, opened: OpenChunk) -> EncodedChunk:
        """Encode document by document. This is the definition, and it also handles input that is not UTF-8."""
        data, end = bytes(opened.data), np.array([] if self.end_id is None else [self.end_id], self._dtype)
        parts = [end[:0]]
        ends: list[int] = []  # numbers of parts
        documents = skipped = 0
        is_open = False
        for documents, (document, texts) in enumerate(opened.documents(), 1):
            if texts is None:
                skipped += 1
                continue
            try:
                parts += self._encode_document(data, document, texts)
            except UnmatchedTextError:
                raise opened.unmatched_error() from None
            except PatternTimeoutError as error:
                raise opened.timeout_error(error, documents - 1, document) from None
            is_open = not document.closed
            if document.closed:
                parts.append(end)
                ends.append(len(parts))
        lengths = np.cumsum([0, *map(len, parts)])
        ends_file = opened.has_records or opened.chunk.ends_file
        statistics = opened.statistics(documents, skipped)
        return EncodedChunk(np.concatenate(parts), lengths[ends], is_open, ends_file, statistics, opened.chunk.weight)

    def _encode_document(self, data: bytes, document: Document, texts: list[bytes]) -> Iterator[NDArray[Any]]:
        """Yield the ids of a document's texts, and of the special tokens between them."""
        previous_end = None
        for (start, end), text in zip(document.pieces, texts, strict=True):
            if previous_end is not None:
                yield np.array([self._specials.ids[data[previous_end:start]]], self._dtype)
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
    def _specials(self) -> SpecialTokens:
        """The special tokens that are not ordinary text."""
        ids = self.tokenizer.special_tokens
        return SpecialTokens.of({token: ids[token] for token in self.rules.delimiters.special_tokens})

    @cached_property
    def _marking(self) -> SpecialTokens:
        """These special tokens, and the separator with the id of the mark."""
        ids = {token.decode(): token_id for token, token_id in self._specials.ids.items()}
        if self.rules.delimiters.separator is not None:
            ids[self.rules.delimiters.separator] = self._mark
        return SpecialTokens.of(ids)


@dataclass(frozen=True)
class CorpusEncoder:
    """A corpus, with its entries in the order of their documents, and the way to encode it."""

    corpus: Corpus
    encoder: ChunkEncoder
    num_threads: int
    chunk_size: int | None

    @cached_property
    def look(self) -> FirstLook:
        """The first look at the corpus, for warnings."""
        rules = self.encoder.rules
        as_text = self.encoder.tokenizer.special_tokens and not rules.delimiters.special_tokens  # by request
        return FirstLook(rules, None if as_text else _END_OF_TEXT)

    @property
    def step(self) -> int:
        """The approximate size of chunks."""
        return self.chunk_size or CHUNK_SIZE["threads" if self._releases_lock else "processes"]

    @cached_property
    def _releases_lock(self) -> bool:
        """Whether other threads can run during encoding.

        The `regex` module, for patterns that cannot be compiled, and `unicodedata`, for normalizers, hold the lock.
        """
        tokenizer = self.encoder.tokenizer
        compiled = why_not_compiled(tokenizer._pretokenizer) is None
        return tokenizer.encoder == "native" and compiled and not tokenizer.normalizer

    def encoded(self, begin: Place = BEGIN) -> Iterator[EncodedChunk]:
        """Encode the corpus from a place on, and yield its chunks in order.

        Raises as `ChunkEncoder.encode` does, and `WorkerDiedError` if an encoder process is killed.
        """
        small = self.corpus.main_process_only or self.corpus.known_bytes <= SMALL_INPUT
        use_threads = self._releases_lock or self.num_threads == 1 or small
        workers = self.num_threads if self._releases_lock or not use_threads else 1
        reader = CorpusReader(self.encoder.rules, self.step, self.look)
        pipeline = Pipeline(
            flow.Source("chunk reader", partial(_numbered_chunks, reader, self.corpus.entries, begin)),
            [
                Stage(
                    "encoder",
                    self.encoder,
                    reads=QueueSpec("chunk_queue", max_items=_CHUNKS_PER_WORKER * workers, route=itemgetter(0)),
                    workers=workers,
                )
            ],
            results=QueueSpec("encoded_queue"),
        )
        with stall_watch(pipeline), closing(pipeline.run("threads" if use_threads else "processes")) as chunks:
            for _, place, chunk in in_order(chunks, itemgetter(0)):
                yield replace(chunk, place=place)


def _numbered_chunks(
    reader: CorpusReader, entries: Sequence[InputFile], begin: Place
) -> Iterator[tuple[int, Place, Chunk]]:
    """Number the chunks from a place on, so that their order can be restored, and add the place after each.

    A file begins with chunks that are done. Those of plain text are not read, and streams are only decompressed.
    """
    numbers = count()
    for entry in range(begin.entry, len(entries)):
        done = begin.chunks if entry == begin.entry else 0
        for chunks, chunk in enumerate(reader.read([entries[entry]]), 1):
            if chunks > done:
                yield next(numbers), Place(entry, chunks), chunk


class ChunkJoiner:
    """Writes chunks, in the order of the corpus, and ends the documents that no separator ends.

    Separators have already become end tokens. The remaining case is text after a file's last separator, even if it is
    only a newline. Such a document ends with the file. It gets an end token if another document follows, or with
    `end_last`. So its end is written with the next document, or when the whole corpus has been read.
    """

    def __init__(self, writer: TokenSetWriter, end_id: int | None, end_last: bool) -> None:
        self._writer = writer
        self._end_ids = np.array([] if end_id is None else [end_id], np.uint32)
        self._end_last = end_last
        # Whether the file so far has text after its last separator, and whether such a file was the last one with text.
        earlier: Sequence[bool] = (writer.journal.checkpoint or {}).get("joiner", (False, False))
        self._open, self._unended = earlier

    @property
    def state(self) -> list[bool]:
        """What a joiner must know to continue later."""
        return [self._open, self._unended]

    def add(self, chunk: EncodedChunk) -> None:
        """Append a chunk. Raises `OSError` if writing fails."""
        if len(chunk.ends) or chunk.open:
            self._end_document(self._end_ids)
        self._writer.write(chunk.ids, chunk.ends)
        self._open = chunk.open or (self._open and not len(chunk.ends))
        if chunk.ends_file and self._open:
            self._open, self._unended = False, True

    def finish(self) -> None:
        """End the last document. Raises `OSError` if writing fails."""
        self._end_document(self._end_ids if self._end_last else self._end_ids[:0])

    def _end_document(self, end_ids: Ids) -> None:
        """Write the end of a document that no separator ended, if there is one."""
        if self._unended:
            self._writer.write(end_ids, np.full(1, len(end_ids)))
            self._unended = False
