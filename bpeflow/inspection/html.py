"""Explanations as HTML without scripts: fragments for pages of others, and a page of their own."""

from __future__ import annotations

from html import escape
from itertools import count, pairwise
from typing import TYPE_CHECKING

from bpeflow.inspection.wording import (
    KEPT_WHOLE,
    LINE_END,
    border_sentence,
    is_incomplete,
    shown_parts,
    span,
    step_sentence,
    summary_sentence,
)

if TYPE_CHECKING:
    from bpeflow.inspection.explanation import Explanation, Token

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
.bpe-steps { border-collapse: collapse; margin-top: 1.5rem; width: 100%; }
.bpe-steps th, .bpe-steps td { border-top: 1px solid rgb(128 128 128 / .25); padding: .3rem .8rem .3rem 0;
  text-align: left; vertical-align: top; white-space: nowrap; }
.bpe-steps td { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.bpe-steps td:last-child { overflow-wrap: anywhere; white-space: pre-wrap; width: 100%; }
.bpe-steps sub, .bpe-note { opacity: .7; font-size: .8em; }
""".strip()

_PAGE_CSS = """\
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { overflow-wrap: anywhere; }
.bpe-tokens { border: 1px solid rgb(128 128 128 / .4); border-radius: 6px; padding: .6rem .8rem; }
"""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
<h1>{title}</h1>
{body}
</html>
"""


def explanation_html(explanation: Explanation) -> str:
    """Return the tokens of an explanation in colours. Each has its id and offsets as a tooltip."""
    colours = count()
    end = 0
    parts = []
    for piece in explanation.pieces:
        start = piece.characters[0]
        if end < start:
            parts.append(_dropped(explanation.text[end:start]))
        tokens = "".join(_token(token, next(colours), break_lines=True) for token in piece.tokens)
        if piece.kind == "special token":
            parts.append(_special(piece.tokens[0]))
        else:
            parts.append(f'<span class="bpe-pre">{tokens}</span>')
        end = piece.characters[1]
    if explanation.text[end:]:
        parts.append(_dropped(explanation.text[end:]))
    return f'<div class="bpe-tokens" dir="auto">{"".join(parts)}</div>'


def notebook_html(explanation: Explanation) -> str:
    """Return the tokens with their style sheet, and the table of pre-tokens and merges to open below them."""
    summary = escape(summary_sentence(explanation))
    details = f"<details><summary>{summary}</summary>{steps_html(explanation)}</details>"
    return f"<style>{TOKENS_CSS}</style>{explanation_html(explanation)}{details}"


def steps_html(explanation: Explanation, steps: bool = True) -> str:
    """Return a table of the pre-tokens with their tokens and ids, and with their merges if `steps`."""
    colours, borders, previous = count(), iter(explanation.borders), None
    rows = []
    for piece in explanation.pieces:
        if previous is not None:
            sentence = border_sentence(next(borders), previous, piece.tokens[0])
            if steps:
                rows.append(f'<tr><td></td><td></td><td class="bpe-note">{escape(sentence)}</td></tr>')
        tokens = " ".join(
            f"{_special(token) if piece.kind == 'special token' else _token(token, next(colours))}<sub>{token.id}</sub>"
            for token in piece.tokens
        )
        sentences = [KEPT_WHOLE] if piece.kind == "whole token" else []
        sentences += [step_sentence(step) for step in piece.steps]
        sentences += [border_sentence(next(borders), *pair) for pair in pairwise(piece.tokens)]
        notes = "".join(f'<div class="bpe-note">{escape(sentence)}</div>' for sentence in sentences if steps)
        rows.append(f"<tr><td>{span(piece.characters)}</td><td>{span(piece.span)}</td><td>{tokens}{notes}</td></tr>")
        previous = piece.tokens[-1]
    body = "\n".join(rows)
    return f'<table class="bpe-steps"><tr><th>chars</th><th>bytes</th><th>tokens and ids</th></tr>\n{body}\n</table>'


def _token(token: Token, number: int, *, break_lines: bool = False) -> str:
    text = _escaped(token.bytes, break_lines)
    return f'<span class="bpe-t bpe-c{number % _COLOURS}" title="{_title(token)}">{text}</span>'


def _special(token: Token) -> str:
    return f'<span class="bpe-special" title="special token, {_title(token)}">{_escaped(token.bytes)}</span>'


def _dropped(text: str) -> str:
    return f'<span class="bpe-dropped" title="the pattern does not match this text">{_escaped(text.encode())}</span>'


def _title(token: Token) -> str:
    (start, end), (first, last) = token.characters, token.span
    incomplete = ", incomplete UTF-8" if is_incomplete(token.bytes) else ""
    return f"id {token.id}, characters {start}–{end}, bytes {first}–{last}{incomplete}"


def _escaped(token: bytes, break_lines: bool = False) -> str:
    """Return a token in HTML. A line ends after the last sign of a line end, if `break_lines`."""
    parts = []
    for part in shown_parts(token):
        text = escape(part.text)
        if part.escaped:
            if break_lines and LINE_END in text:
                text = f"{LINE_END}\n".join(text.rsplit(LINE_END, 1))
            text = f'<span class="bpe-esc">{text}</span>'
        parts.append(text)
    return "".join(parts)


def explanation_page(explanation: Explanation, title: str, steps: bool) -> str:
    """Return a self-contained page: the tokens, and a table of the pre-tokens.

    Args:
        explanation: the explanation.
        title: the title.
        steps: whether the merges of each pre-token are listed, and why its neighbours did not merge.
    """
    summary = escape(summary_sentence(explanation))
    return _PAGE.format(
        title=escape(title),
        style=f"{TOKENS_CSS}\n{_PAGE_CSS}",
        body=f"<p>{summary}</p>\n{explanation_html(explanation)}\n{steps_html(explanation, steps)}",
    )
