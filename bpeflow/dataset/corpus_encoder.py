"""`CorpusEncoder`: the pipeline that reads and encodes a corpus in chunks on all cores. `ChunkJoiner` joins them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from bpeflow import flow
from bpeflow.corpus.checks import FirstLook
from bpeflow.corpus.documents import Chunk
from bpeflow.corpus.reader import CorpusReader
from bpeflow.corpus.sources import Corpus, CorpusEntry
from bpeflow.dataset.chunk_encoder import ChunkEncoder, EncodedChunk, Rest
from bpeflow.dataset.token_file import Ids
from bpeflow.dataset.token_writer import NO_ENDS, TokenSetWriter
from bpeflow.flow import Pipeline, QueueSpec, Stage, in_order, stall_watch
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class CorpusEncoder:
    """A corpus and the way to encode it.

    Attributes:
        corpus: the corpus, with its entries in the order of their documents.
        encoder: encodes a chunk.
        num_threads: number of chunks to encode at once.
        chunk_size: approximate bytes of text in a chunk; None for the default (`CHUNK_SIZE`).
    """

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

    def encoded(self) -> Iterator[EncodedChunk]:
        """Encode the corpus and yield its chunks in order.

        Raises as `ChunkEncoder.encode` does, and `WorkerDiedError` if an encoder process is killed.
        """
        releases_lock = _releases_interpreter_lock(self.encoder.tokenizer)
        small = self.corpus.main_process_only or self.corpus.known_bytes <= SMALL_INPUT
        use_threads = releases_lock or self.num_threads == 1 or small
        chunk_size = self.chunk_size or CHUNK_SIZE["threads" if releases_lock else "processes"]
        workers = self.num_threads if releases_lock or not use_threads else 1
        reader = CorpusReader(self.encoder.rules, chunk_size, look=self.look)
        pipeline = Pipeline(
            flow.Source("chunk reader", partial(_numbered_chunks, reader, self.corpus.entries)),
            [
                Stage(
                    "encoder",
                    self.encoder,
                    reads=QueueSpec("chunk_queue", max_items=_CHUNKS_PER_WORKER * workers, route=itemgetter(0)),
                    workers=workers,
                )
            ],
            results=QueueSpec("encoded_queue"),
            preload=("bpeflow.dataset.chunk_encoder",),
        )
        with stall_watch(pipeline), closing(pipeline.run("threads" if use_threads else "processes")) as chunks:
            for _, chunk in in_order(chunks, itemgetter(0)):
                yield chunk


def _numbered_chunks(reader: CorpusReader, entries: Sequence[CorpusEntry]) -> Iterator[tuple[int, Chunk]]:
    """Number the chunks of a corpus, so that their order can be restored."""
    return enumerate(reader.read(entries))


def _releases_interpreter_lock(tokenizer: Tokenizer) -> bool:
    """Return whether other threads can run during encoding.

    The `regex` module, for custom patterns, and `unicodedata`, for normalizers, hold the lock.
    """
    return tokenizer.encoder == "native" and not (load_pretokenizer(tokenizer.pattern).custom or tokenizer.normalizer)


class ChunkJoiner:
    """Writes chunks, in the order of the corpus, and finds where its documents end.

    Separators have already become end tokens. The remaining case is a file that does not end with a separator. The end
    of such a file ends a document, too, and an end token follows it if another document follows, or if every document
    is to have one. White space between a file's last separator and its end is not a document. It belongs to the one
    before.

    Ids are written when it is known which document they belong to, so that white space after a separator waits for what
    follows. The end of a document is written with the first ids of the next one.

    Args:
        writer: takes the ids.
        end_id: the end token; None if there is none.
        end_last: whether an end token follows the last document of the corpus, too.
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
