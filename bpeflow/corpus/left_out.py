"""Messages after counting about text that was not counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpeflow._util.text import format_size
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.text_rules import Source
from bpeflow.pretokenize.regex import Pretokenizer

if TYPE_CHECKING:
    from bpeflow.config import CountSettings

log = logging.getLogger(__name__)


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
