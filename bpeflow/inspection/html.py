"""Explanations as HTML: fragments without scripts, their style sheet, and whole pages."""

from __future__ import annotations

from html import escape
from itertools import count

from bpeflow.inspection.explain import Explainer, Explanation, Token
from bpeflow.inspection.shown import LINE_END, is_incomplete, shown_parts
from bpeflow.tokenizer.tokenizer import BaseTokenizer

#: Number of colours that tokens take in turn.
_COLOURS = 6

#: The style sheet of all fragments. Backgrounds are translucent and text has the page's own colour, so that it fits
#: light and dark pages.
TOKENS_CSS = """
.bpe-tokens { line-height: 1.9; overflow-wrap: anywhere; white-space: pre-wrap; font-family: ui-monospace, "SF Mono",
  "DejaVu Sans Mono", Menlo, Consolas, monospace; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bpe-pre { border-bottom: 2px solid rgb(128 128 128 / .55); margin-inline-end: 2px; padding-bottom: 1px; }
.bpe-t { border-radius: 3px; padding: 1px 0; }
.bpe-c0 { background: rgb(66 133 244 / .32); } .bpe-c1 { background: rgb(52 168 83 / .32); }
.bpe-c2 { background: rgb(251 160 4 / .36); } .bpe-c3 { background: rgb(234 67 53 / .30); }
.bpe-c4 { background: rgb(156 39 176 / .28); } .bpe-c5 { background: rgb(0 172 193 / .32); }
.bpe-special { border: 1px solid currentColor; border-radius: 3px; padding: 0 3px; font-weight: 600;
  margin-inline-end: 2px; }
.bpe-esc { opacity: .65; font-size: .85em; }
.bpe-dropped { opacity: .5; text-decoration: line-through; margin-inline-end: 2px; }
""".strip()


def tokens_html(tokenizer: BaseTokenizer, text: str) -> str:
    """Return the tokens of a text, in colours, as an HTML fragment without scripts.

    Each token has its id and offsets as a tooltip. The page needs `TOKENS_CSS`.
    """
    return explanation_html(Explainer(tokenizer).explain(text))


def explanation_html(explanation: Explanation) -> str:
    """Return the tokens of an explanation as `tokens_html` does."""
    colours = count()
    end = 0
    parts = []
    for piece in explanation.pieces:
        start = piece.characters[0]
        if end < start:
            parts.append(_dropped(explanation.text[end:start]))
        tokens = "".join(_token(token, next(colours)) for token in piece.tokens)
        if piece.kind == "special token":
            parts.append(_special(piece.tokens[0]))
        else:
            parts.append(f'<span class="bpe-pre">{tokens}</span>')
        end = piece.characters[1]
    if explanation.text[end:]:
        parts.append(_dropped(explanation.text[end:]))
    return f'<div class="bpe-tokens" dir="auto">{"".join(parts)}</div>'


def _token(token: Token, number: int) -> str:
    return f'<span class="bpe-t bpe-c{number % _COLOURS}" title="{_title(token)}">{_escaped(token.bytes)}</span>'


def _special(token: Token) -> str:
    return f'<span class="bpe-special" title="special token, {_title(token)}">{_escaped(token.bytes)}</span>'


def _dropped(text: str) -> str:
    return f'<span class="bpe-dropped" title="the pattern does not match this text">{_escaped(text.encode())}</span>'


def _title(token: Token) -> str:
    (start, end), (first, last) = token.characters, token.span
    incomplete = ", incomplete UTF-8" if is_incomplete(token.bytes) else ""
    return f"id {token.id}, characters {start}–{end}, bytes {first}–{last}{incomplete}"


def _escaped(token: bytes) -> str:
    return "".join(
        f'<span class="bpe-esc">{_broken(escape(part.text))}</span>' if part.escaped else escape(part.text)
        for part in shown_parts(token)
    )


def _broken(text: str) -> str:
    """End the line after the last sign of a line end."""
    before, sign, after = text.rpartition(LINE_END)
    return f"{before}{sign}\n{after}" if sign else text
