"""The chunk reader: files in, chunks out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpeflow.corpus import Chunk, CorpusFile, Delimiters, InvalidUtf8Policy, plan_chunks
from bpeflow.pretokenize import Pretokenizer


@dataclass(frozen=True)
class ChunkReader:
    """What the chunk reader runs: a source function, picklable. It looks for the ends of chunks and reads little else.

    Attributes:
        files: the corpus.
        chunk_size: bytes of text in a chunk, about.
        delimiters: chunks end at the separator.
        pretokenizer: tells where a document may be cut that is longer than a chunk.
        invalid_utf8: under ``skip`` no document is cut, for it must be seen whole to be skipped whole.
    """

    files: Sequence[CorpusFile]
    chunk_size: int
    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy

    def __call__(self) -> Iterator[Chunk]:
        may_cut = self.invalid_utf8 != "skip"
        return plan_chunks(self.files, self.chunk_size, self.delimiters, self.pretokenizer, cut_documents=may_cut)
