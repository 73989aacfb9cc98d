"""A corpus to ids in order, with all cores and in bounded memory.

::

    corpus ─plan─▶ chunk_queue ─▶ encoder ×N ─▶ encoded_queue ─▶ in order ─▶ the caller

Where the encoder leaves the interpreter to others while it is at work, the native one with a named pattern, the N are
threads of this process. Elsewhere they are processes of their own, unless the corpus is small.

**Memory.** With threads, ``N * CHUNKS_AHEAD`` chunks are under way at once. With processes, chunk ``i`` goes to process
``i % N``, so that one which takes long holds back the reader as soon as ``_QUEUED`` chunks wait for it: then at most
``N * (_QUEUED + 1)`` encoded chunks wait for their turn. A chunk under way is its text, or its ids: at worst as many as
it has bytes. It has about ``chunk_size`` bytes; more only where documents are longer and must not be cut: with a
pattern of one's own, and under ``invalid_utf8: skip``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from operator import attrgetter
from threading import Event

from bpeflow.corpus import CorpusFile, StreamReader, StreamTask
from bpeflow.counting.memory import LONGEST_TEXT
from bpeflow.counting.reader import ChunkReader
from bpeflow.flow import Pipeline, QueueSpec, Source, Stage, stall_watch
from bpeflow.pretokenize import load_pretokenizer
from bpeflow.tokenizer.chunk_encoder import ChunkEncoder, EncodedChunk, NumberedChunk
from bpeflow.tokenizer.tokenizer import Tokenizer

#: Bytes of text in a chunk, about. Larger: fewer hand-overs; smaller: less memory, and small corpora for many cores.
CHUNK_SIZE = {"threads": 4_000_000, "processes": 1_000_000}

#: Up to this size a corpus is encoded in this process, on one core if need be: starting processes would take longer.
SMALL_INPUT = 4_000_000

#: Chunks that may wait for the encoder processes. More would let more encoded chunks wait for one that takes long.
_QUEUED = 2


@dataclass(frozen=True)
class CorpusEncoder:
    """A corpus, and how it is going to be encoded.

    Attributes:
        files: the corpus, in the order of its documents.
        encoder: what to do with a chunk of it.
        threads: how many chunks to encode at once.
        chunk_size: bytes of text in a chunk, about; None for what suits the way that it is encoded in.
    """

    files: Sequence[CorpusFile | StreamTask]
    encoder: ChunkEncoder
    threads: int
    chunk_size: int | None

    @cached_property
    def bytes(self) -> int:
        """The size of the corpus."""
        return sum(file.weight for file in self.files)

    def encoded(self) -> Iterator[EncodedChunk]:
        """Encode the corpus: its chunks, in order. Raises as `ChunkEncoder.encode` does, and `WorkerDied`."""
        in_threads = _leaves_interpreter(self.encoder.tokenizer)
        only_here = any(isinstance(file, StreamTask) and file.only_here for file in self.files)
        in_process = in_threads or self.threads == 1 or only_here or self.bytes <= SMALL_INPUT
        chunk_size = self.chunk_size or CHUNK_SIZE["threads" if in_threads else "processes"]
        given_up = Event() if only_here else None  # and so in process
        pipeline = Pipeline(
            Source("chunk reader", _NumberedReader(self._reader(chunk_size, given_up))),
            [
                Stage(
                    "encoder",
                    replace(self.encoder, threads=self.threads if in_threads else 1, given_up=given_up),
                    reads=QueueSpec("chunk_queue", max_items=_QUEUED, route=attrgetter("number")),
                    workers=1 if in_process else self.threads,
                )
            ],
            results=QueueSpec("encoded_queue"),
            preload=("bpeflow.tokenizer.chunk_encoder",),
        )
        with stall_watch(pipeline), closing(pipeline.run(inline=in_process)) as chunks:
            yield from _in_order(chunks)

    def _reader(self, chunk_size: int, given_up: Event | None) -> ChunkReader:
        encoder = self.encoder
        pretokenizer = load_pretokenizer(encoder.tokenizer.pattern)
        delimiters, invalid_utf8 = encoder.delimiters, encoder.invalid_utf8
        streams = StreamReader(
            [encoder.source], chunk_size, LONGEST_TEXT, delimiters, pretokenizer, invalid_utf8, given_up
        )
        return ChunkReader(self.files, chunk_size, delimiters, pretokenizer, invalid_utf8, streams=streams)


@dataclass(frozen=True)
class _NumberedReader:
    """The chunk reader's source function, picklable: it counts the chunks, so that they can be put in order again."""

    reader: ChunkReader

    def __call__(self) -> Iterator[NumberedChunk]:
        return starmap(NumberedChunk, enumerate(self.reader.chunks()))


def _in_order(chunks: Iterable[EncodedChunk]) -> Iterator[EncodedChunk]:
    waiting: dict[int, EncodedChunk] = {}
    following = 0
    for chunk in chunks:
        waiting[chunk.number] = chunk
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _leaves_interpreter(tokenizer: Tokenizer) -> bool:
    """Whether other threads may use the interpreter meanwhile; the `regex` module of custom patterns keeps it."""
    return tokenizer.encoder == "native" and not load_pretokenizer(tokenizer.pattern).custom
