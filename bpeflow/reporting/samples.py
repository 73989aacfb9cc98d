"""Pieces of the sample on the page, with their tokens coloured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bpeflow.inspection.html import tokens_html
from bpeflow.reporting.data import RunData

#: Pieces that are shown, and the characters of each.
_PIECES, _LENGTH = 3, 500


def shown_samples(runs: Sequence[RunData]) -> Iterator[str]:
    """Yield some pieces of text, each in the tokens of every run."""
    pieces = list(_pieces(runs[0]))
    tokenizers = {run.name: run.tokenizer for run in runs if run.tokenizer is not None}
    if not pieces or not tokenizers:
        return
    yield "<h2>Samples</h2>"
    for piece in pieces:
        for name, tokenizer in tokenizers.items():
            if len(runs) > 1:
                yield f"<h3>{escape(name)}</h3>"
            yield f'<div class="text">{tokens_html(tokenizer, piece)}</div>'


def _pieces(run: RunData) -> Iterator[str]:
    texts = [text for texts in run.sample.texts.values() for text in texts if len(text) >= _LENGTH]
    texts = texts or [text for texts in run.sample.texts.values() for text in texts]
    for text in texts[:: max(len(texts) // _PIECES, 1)][:_PIECES]:
        yield text.strip()[:_LENGTH]
