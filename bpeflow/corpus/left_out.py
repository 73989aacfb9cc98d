"""What to say about text that is not counted: the error for text without a match, and messages after counting."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpeflow._util.text import InvalidUtf8Policy, format_size
from bpeflow.corpus.chunk import Chunk, StreamChunk
from bpeflow.corpus.documents import Delimiters, DocumentStatistics, decode_document
from bpeflow.corpus.formats.jsonl import parse_line
from bpeflow.corpus.sources import Source
from bpeflow.errors import CorpusError
from bpeflow.pretokenize.regex import Pretokenizer

if TYPE_CHECKING:
    from bpeflow.config import CountSettings

log = logging.getLogger(__name__)


def unmatched_error(
    data: bytes,
    chunk: Chunk,
    delimiters: Delimiters,
    pretokenizer: Pretokenizer,
    invalid_utf8: InvalidUtf8Policy,
    text_field: Sequence[str],
) -> CorpusError:
    """Return the error for the first text in `data` that the pattern does not match, with its file and position.

    Args:
        data: the text of the chunk; for records, the documents, each followed by `RECORD_END`.
        chunk: the chunk. Its offset is the position of `data`, unless it has records.
        delimiters: the delimiters of the documents in `data`.
        pretokenizer: the pattern.
        invalid_utf8: what to do with text that is not UTF-8.
        text_field: path of the field with the text in lines of JSON.
    """
    for number, document in enumerate(delimiters.documents(data)):
        texts = decode_document(data, document, chunk, invalid_utf8) or []
        for (start, _), text in zip(document.pieces, texts, strict=False):
            if unmatched := pretokenizer.find_unmatched_before_normalizing(text.decode()):
                position = start + len(text.decode()[: unmatched.start].encode())
                place = _place(chunk, number, position, text_field, invalid_utf8)
                return CorpusError(f"{chunk.path}: {pretokenizer.describe(unmatched, place)}")
    return CorpusError(f"{chunk.path}: the pattern {pretokenizer.regex!r} does not match all text")


def _place(
    chunk: Chunk, document: int, position: int, text_field: Sequence[str], invalid_utf8: InvalidUtf8Policy
) -> str:
    if not isinstance(chunk, StreamChunk) or chunk.holds == "text":
        return f"byte {chunk.offset + position:,}"
    if chunk.holds == "records":
        return f"byte {chunk.offset + position - document:,} of its documents' text"
    lines = [
        number
        for number, line in enumerate(chunk.data.split(b"\n"), chunk.line)
        for found in parse_line(line, number, chunk.path, text_field, invalid_utf8, "skip")
        if isinstance(found, bytes)
    ]
    return f"line {lines[document]:,}"


def warn_of_empty_sources(sources: Sequence[Source], documents: DocumentStatistics) -> None:
    """Warn of sources of which nothing was counted: a mistyped `text_field` looks like many bad records."""
    for source, statistics in zip(sources, documents.sources, strict=False):
        if statistics.bad_records and not statistics.documents:
            log.warning("source %s: no record has text; is its text_field or text_column right?", source.name)


def why_nothing(documents: DocumentStatistics, pretokenizer: Pretokenizer) -> str:
    """Return why a corpus has no pre-tokens."""
    left_out = documents.skipped_documents + documents.bad_records
    if left_out and documents.documents <= left_out:
        return "all documents were skipped"
    if not documents.bytes:
        return "the corpus is empty"
    if pretokenizer.custom:
        return (
            f"the pattern {pretokenizer.regex!r} matches nothing in the corpus, or there is nothing but separators and "
            "special tokens"
        )
    return "the corpus has nothing but separators and special tokens"


def report_unmatched(documents: DocumentStatistics, settings: CountSettings) -> None:
    """Log how much of the text the pattern did not match: a warning if text is lost, or if it matched nothing."""
    unmatched, example = documents.unmatched_bytes, documents.unmatched_example
    if not unmatched:
        return
    percent = 100 * unmatched / (unmatched + documents.matched_bytes)
    share = f"{percent:.1f} % of the text ({format_size(unmatched)})"
    if settings.unmatched == "drop":
        log.warning(
            "pattern: %s is matched by nothing and dropped, e.g. %s; unmatched: isolate keeps it", share, example
        )
    elif not documents.matched_bytes:
        log.warning("pattern: %r matches nothing in the corpus, e.g. in %s", settings.pattern, example)
    else:
        log.info("pattern: %s is between matches and makes pre-tokens of its own, e.g. %s", share, example)
