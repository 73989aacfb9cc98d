"""Rules for text, and the texts of a chunk under them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.documents import Chunk, Delimiters, DocumentStatistics
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.open_chunk import OpenChunk
from bpeflow.corpus.text_rules import TextRules
from bpeflow.pretokenize.regex import load_pretokenizer


def rules(
    separator: str | None = None,
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
    policy: InvalidUtf8Policy = "error",
    *,
    cut: bool = True,
) -> TextRules:
    """Return rules that let documents be cut, or not."""
    policy = policy if cut else "skip"
    return TextRules(load_pretokenizer(pattern), Delimiters(separator, special_tokens), policy)


def plain_file(path: Path, size: int) -> InputFile:
    """Return a file of plain text."""
    return InputFile(str(path), size, plain=True)


def texts_of(opened: OpenChunk) -> tuple[list[bytes], DocumentStatistics]:
    """Return the texts of a chunk that are not empty, and its statistics."""
    texts: list[bytes] = []
    documents = skipped = 0
    for document, pieces in opened.documents():
        documents += document.closed or opened.chunk.ends_file
        skipped += pieces is None
        texts += filter(None, pieces or ())
    return texts, opened.statistics(documents, skipped)


def opened_text(data: bytes, rules: TextRules, ends_file: bool = True, offset: int = 0) -> OpenChunk:
    """Return a text as a chunk that was opened."""
    chunk = Chunk("corpus.txt", offset, len(data), ends_file)
    return OpenChunk(chunk, rules, memoryview(data), rules.delimiters, offset)
