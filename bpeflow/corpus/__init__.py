"""The corpus: which files it has, how they are planned into chunks, and how a chunk becomes texts."""

from bpeflow.corpus.delimiters import Delimiters, Document
from bpeflow.corpus.documents import ChunkBuffer, ChunkTexts, DocumentStatistics, InvalidUtf8Policy, decode_chunk
from bpeflow.corpus.files import CorpusFile, find_files
from bpeflow.corpus.plan import Chunk, find_boundary, plan_chunks

__all__ = [
    "Chunk",
    "ChunkBuffer",
    "ChunkTexts",
    "CorpusFile",
    "Delimiters",
    "Document",
    "DocumentStatistics",
    "InvalidUtf8Policy",
    "decode_chunk",
    "find_boundary",
    "find_files",
    "plan_chunks",
]
