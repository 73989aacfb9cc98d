"""The pipeline that reads and encodes a corpus in chunks on all cores: `CorpusEncoder`.

`ChunkEncoder` turns a chunk into ids, and `ChunkJoiner` joins the ids of chunks into documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpeflow import flow
from bpeflow.corpus.checks import FirstLook
from bpeflow.corpus.documents import Chunk, Document, DocumentStatistics
from bpeflow.corpus.open_chunk import ChunkBuffer, OpenChunk, open_chunk
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import Corpus, CorpusEntry
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.budget import longest_text
from bpeflow.dataset.token_file import Ids
from bpeflow.dataset.token_writer import NO_ENDS, TokenSetWriter
from bpeflow.errors import InvalidTextError, PatternTimeoutError, ResumeError, UnmatchedTextError
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

#: What happens to end-of-text strings that are no special tokens of the tokenizer.
_END_OF_TEXT = "no special tokens of this tokenizer, so encoded as ordinary text"


#: The text that a chunk has after its last separator.
Rest = Literal["none", "blank", "text"]


class Place(NamedTuple):
    """A place in a corpus, between two chunks.

    Attributes:
        entry: the index of a file or stream in the corpus.
        chunks: number of its chunks before this place.
        end: position in its text at which the last of them ends.
    """

    entry: int = 0
    chunks: int = 0
    end: int = 0


#: The beginning of a corpus.
BEGIN = Place()


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The ids of a chunk.

    Attributes:
        ids: the ids, one-dimensional.
        ends: for each document that a separator ends in the chunk, the position in `ids` after its last id (its end
            token, if there is one), ascending. Skipped documents have no entry.
        rest: the text after the last separator: none, white space only, or other text.
        ends_file: whether the chunk is the last of its file.
        statistics: statistics of the chunk. Its number of documents is meaningless.
        weight: the chunk's share of the corpus, in bytes of its files.
        place: the place after the chunk; None if encoding cannot be resumed from there.
    """

    ids: Ids
    ends: NDArray[np.int64]
    rest: Rest
    ends_file: bool
    statistics: DocumentStatistics
    weight: int = 0
    place: Place | None = None


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
        return replace(self.encode_text(open_chunk(chunk, self.rules, buffer)), weight=chunk.weight)

    def encode_text(self, opened: OpenChunk) -> EncodedChunk:
        """Encode the text of a chunk: in one call if possible, else document by document.

        With a normalizer, only text in ASCII is encoded in one call.

        Raises `InvalidUtf8Error`, with the file and position.
        """
        pretokenizer = self.rules.pretokenizer
        drops = pretokenizer.custom and pretokenizer.unmatched == "drop"  # then not all text has ids
        if not (drops or opened.has_records) and pretokenizer.normalizer.keeps_ascii(bytes(opened.data)):
            try:
                return self._encode_at_once(opened)
            except (InvalidTextError, PatternTimeoutError):
                pass  # the error is to name the document
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
        """Describe the text of the ids after the last separator. All text has ids."""
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
            except PatternTimeoutError as error:
                raise opened.timeout_error(error, documents - 1, document) from None
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
        releases_lock = _releases_interpreter_lock(self.encoder.tokenizer)
        return self.chunk_size or CHUNK_SIZE["threads" if releases_lock else "processes"]

    def encoded(self, begin: Place = BEGIN) -> Iterator[EncodedChunk]:
        """Encode the corpus from a place on, and yield its chunks in order.

        Raises as `ChunkEncoder.encode` does, and `WorkerDiedError` if an encoder process is killed.
        """
        releases_lock = _releases_interpreter_lock(self.encoder.tokenizer)
        small = self.corpus.main_process_only or self.corpus.known_bytes <= SMALL_INPUT
        use_threads = releases_lock or self.num_threads == 1 or small
        workers = self.num_threads if releases_lock or not use_threads else 1
        reader = CorpusReader(self.encoder.rules, self.step, longest_text(self.encoder.rules), self.look)
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
            preload=("bpeflow.dataset.corpus_encoder",),
        )
        with stall_watch(pipeline), closing(pipeline.run("threads" if use_threads else "processes")) as chunks:
            for _, place, chunk in in_order(chunks, itemgetter(0)):
                yield replace(chunk, place=place)


def _releases_interpreter_lock(tokenizer: Tokenizer) -> bool:
    """Return whether other threads can run during encoding.

    The `regex` module, for patterns that cannot be compiled, and `unicodedata`, for normalizers, hold the lock.
    """
    compiled = why_not_compiled(tokenizer._pretokenizer) is None
    return tokenizer.encoder == "native" and compiled and not tokenizer.normalizer


def _numbered_chunks(
    reader: CorpusReader, entries: Sequence[CorpusEntry], begin: Place
) -> Iterator[tuple[int, Place, Chunk]]:
    """Number the chunks from a place on, so that their order can be restored, and add the place after each.

    A file begins with chunks that are done. Those of plain text are not read, and streams are only decompressed.
    """
    numbers = count()
    for entry in range(begin.entry, len(entries)):
        place, done = Place(entry), begin.chunks if entry == begin.entry else 0
        for chunks, chunk in enumerate(reader.read([entries[entry]]), 1):
            place = Place(entry, chunks, chunk.offset + chunk.length)
            if chunks > done:
                yield next(numbers), place, chunk
            elif chunks == done:
                _check_place(place, begin, entries[entry])
        if place.chunks < done:
            _check_place(place, begin, entries[entry])


def _check_place(place: Place, begin: Place, entry: CorpusEntry) -> None:
    """Raise `ResumeError` if a file is divided into chunks in another way than it was before."""
    if place != begin:
        raise ResumeError(
            f"{entry.files[0].title}: cannot be resumed, as it is read in other pieces than before (chunk "
            f"{place.chunks:,} ends at byte {place.end:,}, not {begin.end:,}): start over with overwrite=True "
            "(--overwrite) and without resume"
        )


class ChunkJoiner:
    """Writes chunks, in the order of the corpus, and finds where its documents end.

    Separators have already become end tokens. The remaining case is a file that does not end with a separator. The end
    of such a file ends a document, too, and an end token follows it if another document follows, or if every document
    is to have one. White space between a file's last separator and its end is not a document. It belongs to the one
    before.

    Ids are written when it is known which document they belong to, so that white space after a separator waits for what
    follows. The end of a document is written with the first ids of the next one. With `end_last`, an end token follows
    the last document of the corpus, too.
    """

    def __init__(self, writer: TokenSetWriter, end_id: int | None, end_last: bool) -> None:
        self._writer = writer
        self._end_id = end_id
        self._end_last = end_last
        self._rest: Rest = "none"  # the text of the file so far after its last separator
        self._has_separator = False  # whether the file so far has one
        self._blank: list[Ids] = []  # the white space after it, without any other text so far
        self._ended = False  # whether the document whose ids were written last has ended, and its end was not written
        self._owes_end_token = False  # whether that document has no end token

    @property
    def state(self) -> list[Any] | None:
        """What a joiner must know to continue later, if that is short."""
        return None if self._blank else [self._rest, self._has_separator, self._ended, self._owes_end_token]

    def restore(self, state: Sequence[Any]) -> None:
        """Continue from an earlier joiner's state."""
        self._rest, self._has_separator, self._ended, self._owes_end_token = state

    def add(self, chunk: EncodedChunk) -> None:
        """Append a chunk. Raises `OSError` if writing fails."""
        if len(chunk.ends) or chunk.rest != "none":
            self._write_owed_end_token()
        ids, ends = chunk.ids, chunk.ends
        if len(ends):
            last = int(ends[-1])
            self._write(ids[:last], ends[:-1])
            self._ended = self._has_separator = True
            self._rest = "none"
            ids = ids[last:]
        if chunk.rest == "text" or self._rest == "none":
            self._rest = chunk.rest
        if self._rest == "blank" and self._has_separator:
            self._blank.append(ids)
        elif self._rest != "none":
            self._write(ids)
        if chunk.ends_file:
            self._end_file()

    def finish(self) -> None:
        """Write the rest. Raises `OSError` if writing fails."""
        if self._end_last:
            self._write_owed_end_token()
        if self._ended:
            self._writer.write(np.empty(0, np.uint16), np.zeros(1, np.int64))

    def _end_file(self) -> None:
        for ids in self._blank:
            self._writer.write(ids)
        if self._rest == "text" or (self._rest == "blank" and not self._has_separator):
            self._ended = self._owes_end_token = True
        self._blank, self._rest, self._has_separator = [], "none", False

    def _write_owed_end_token(self) -> None:
        if self._owes_end_token and self._end_id is not None:
            self._writer.write(np.array([self._end_id], np.uint32))
        self._owes_end_token = False

    def _write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Write ids that do not belong to a document that has ended, after the white space that comes before them."""
        if self._blank:
            ends = ends + sum(map(len, self._blank))
            ids = np.concatenate([*self._blank, ids])
            self._blank = []
        if self._ended:
            ends = np.concatenate([np.zeros(1, np.int64), ends])
            self._ended = False
        self._writer.write(ids, ends)
