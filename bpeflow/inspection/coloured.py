"""Explanations on a terminal, in colours. Rich is imported when this module is."""

from __future__ import annotations

from itertools import count, pairwise

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bpeflow.inspection.explanation import Explanation, Piece, Token
from bpeflow.inspection.wording import (
    KEPT_WHOLE,
    LINE_END,
    border_sentence,
    shown_parts,
    span,
    step_sentence,
    summary_sentence,
)

#: Styles that tokens take in turn: dark text on a light ground, which can be read on light and dark terminals.
_STYLES = tuple(f"black on {ground}" for ground in ("#a6c8ff", "#a8dab5", "#fdd663", "#f6aea9", "#d7aefb", "#a1e4f2"))

_SPECIAL = "bold reverse"
_DIM = "dim"


def print_explanation(explanation: Explanation, console: Console, steps: bool) -> None:
    """Print an explanation: the text, and a table of its pre-tokens, with the merges of each if `steps`."""
    console.print(coloured_text(explanation))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("chars", no_wrap=True, style=_DIM)
    table.add_column("bytes", no_wrap=True, style=_DIM)
    table.add_column("tokens and ids", overflow="fold")
    colours, borders, previous = count(), iter(explanation.borders), None
    for piece in explanation.pieces:
        notes = [_note(KEPT_WHOLE)] if piece.kind == "whole token" else []
        notes += [_note(step_sentence(step)) for step in piece.steps]
        if previous is not None:
            sentence = border_sentence(next(borders), previous, piece.tokens[0])
            if steps:
                table.add_row("", "", _note(sentence))
        notes += [_note(border_sentence(next(borders), *pair)) for pair in pairwise(piece.tokens)]
        tokens = Text(" ").join(_with_id(token, _style(piece, next(colours))) for token in piece.tokens)
        table.add_row(span(piece.characters), span(piece.span), Group(tokens, *notes) if steps else tokens)
        previous = piece.tokens[-1]
    console.print(table)
    console.print(Text(summary_sentence(explanation), _DIM))


def coloured_text(explanation: Explanation) -> Text:
    """Return the text with its tokens in colours, and a bar between two pre-tokens of a line."""
    colours, text = count(), Text()
    for index, piece in enumerate(explanation.pieces):
        if index and not text.plain.endswith("\n"):
            text.append("│", _DIM)
        for token in piece.tokens:
            style = _style(piece, next(colours))
            for part in shown_parts(token.bytes):
                before, sign, after = part.text.rpartition(LINE_END) if part.escaped else ("", "", part.text)
                text.append(before + sign, f"{style} italic")
                text.append("\n" if sign else "")
                text.append(after, f"{style} italic" if part.escaped else style)
    if text.plain.endswith("\n"):
        text.right_crop()
    return text


def _with_id(token: Token, style: str) -> Text:
    text = Text()
    for part in shown_parts(token.bytes):
        text.append(part.text, f"{style} italic" if part.escaped else style)
    return text.append(f" {token.id}", _DIM)


def _style(piece: Piece, number: int) -> str:
    return _SPECIAL if piece.kind == "special token" else _STYLES[number % len(_STYLES)]


def _note(sentence: str) -> Padding:
    return Padding(Text(sentence, _DIM), (0, 0, 0, 2))
