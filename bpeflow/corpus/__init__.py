"""The corpus: which files it has, how they are planned into chunks, and how a chunk becomes texts.

`files` finds the files of this machine and `inputs` whatever else may be named; `plan` divides plain text into chunks
by looking for `boundaries`. All else are `streams`: `compression` is undone, `cutting` divides them, `records` and
`parquet` take documents out of them, `sample` chooses among these, and `stream_reader` does it in this order.
"""

from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.delimiters import Delimiters, Document
from bpeflow.corpus.documents import ChunkBuffer, ChunkTexts, DocumentStatistics, InvalidUtf8Policy, decode_chunk
from bpeflow.corpus.files import CorpusFile, find_files
from bpeflow.corpus.plan import Chunk, find_boundary, plan_chunks
from bpeflow.corpus.sources import Source
from bpeflow.corpus.stream_reader import StreamReader, StreamTask
from bpeflow.corpus.streams import StreamFile

__all__ = [
    "Chunk",
    "ChunkBuffer",
    "ChunkTexts",
    "CorpusFile",
    "Delimiters",
    "Document",
    "DocumentStatistics",
    "InvalidUtf8Policy",
    "Source",
    "StreamChunk",
    "StreamFile",
    "StreamReader",
    "StreamTask",
    "decode_chunk",
    "find_boundary",
    "find_files",
    "plan_chunks",
]
