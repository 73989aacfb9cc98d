"""The chunk reader: files in, chunks out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpeflow.corpus import (
    Chunk,
    CorpusFile,
    Delimiters,
    InvalidUtf8Policy,
    StreamReader,
    StreamTask,
    plan_chunks,
)
from bpeflow.corpus.given import GivenDocuments
from bpeflow.pretokenize import Pretokenizer


@dataclass(frozen=True)
class ChunkReader:
    """What the chunk reader runs: a source function, picklable. It looks for the ends of chunks and reads little else.

    Attributes:
        files: the corpus, or a part of it: files to be divided, and streams.
        chunk_size: bytes of text in a chunk, about.
        delimiters: chunks end at the separator.
        pretokenizer: tells where a document may be cut that is longer than a chunk.
        invalid_utf8: under ``skip`` no document is cut, for it must be seen whole to be skipped whole.
        longest: bytes of a chunk that cannot be divided: more are an error.
        streams: reads the streams here; without it they are handed on, for others to read.
    """

    files: Sequence[CorpusFile | StreamTask | GivenDocuments]
    chunk_size: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    longest: int = sys.maxsize
    streams: StreamReader | None = None

    def __call__(self) -> Iterator[Chunk | StreamTask]:
        for file in self.files:
            if isinstance(file, CorpusFile):
                yield from self._planned(file)
            elif isinstance(file, GivenDocuments):
                yield from file.chunks(self.chunk_size, self.invalid_utf8)
            elif self.streams is not None:
                yield from self.streams.read(file)
            else:
                yield from _divided(file)

    def chunks(self) -> Iterator[Chunk]:
        """All chunks: for readers that hand no stream on, because they read them or have none."""
        for item in self():
            if isinstance(item, StreamTask):
                raise TypeError(f"{item} is to be read by others")
            yield item

    def _planned(self, file: CorpusFile) -> Iterator[Chunk]:
        may_cut = self.invalid_utf8 != "skip"
        return plan_chunks([file], self.chunk_size, self.delimiters, self.pretokenizer, may_cut, self.longest)


def _divided(task: StreamTask) -> Iterator[StreamTask]:
    """The row groups of a Parquet file, to be read in parallel; other streams as they are."""
    if task.sampled or task.files[0].format != "parquet":
        yield task
        return
    from bpeflow.corpus.parquet import row_groups

    for group in row_groups(task.files[0]):
        yield StreamTask((group,))
