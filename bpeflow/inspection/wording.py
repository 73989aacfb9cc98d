"""Explanations in words, and tokens in characters that are safe on a screen: what all forms share, and plain text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category

from bpeflow._util.text import format_count, show_token

if TYPE_CHECKING:
    from bpeflow.inspection.explanation import Border, Explanation, Missed, Reason, Step, Token

#: The sign of a line end.
LINE_END = "⏎"

#: Characters that are shown as a sign instead of an escape.
_SIGNS = {"\n": LINE_END, "\t": "⇥", "\r": "␍"}

#: Columns that a token takes at most.
_TOKEN_WIDTH = 60

#: What is between two tokens that merges do not reach across.
_BORDERS: dict[Reason, str] = {
    "pre-token": "border of pre-tokens",
    "special token": "border of a special token",
    "dropped text": "text between them that the pattern does not match",
}

#: The note on a pre-token that `whole_tokens` keeps from merging.
KEPT_WHOLE = "the pre-token is a token, so it is not merged"

#: Columns up to which shorter entries are padded to the longest.
_ALIGNED = 28

#: Merges that were missed at a border, at most, that are listed.
_LISTED = 3


class Part(NamedTuple):
    """A part of a token. *Escaped* parts are characters or bytes that cannot be shown as they are."""

    text: str
    escaped: bool


def shown_parts(token: bytes) -> Iterator[Part]:
    r"""Yield the parts of a token.

    Bytes that are not UTF-8, control characters and other invisible characters are escaped. A combining character at
    the start of a part gets a dotted circle before it, as it would otherwise change the previous character.

    >>> list(shown_parts(b"a\n\xf0\x9f"))
    [Part(text='a', escaped=False), Part(text='⏎\\xf0\\x9f', escaped=True)]
    """
    plain = escaped = ""
    for character in token.decode(errors="surrogateescape"):
        if character.isprintable():
            if escaped:
                yield Part(escaped, True)
                escaped = ""
            plain += f"◌{character}" if not plain and _combines(character) else character
        else:
            if plain:
                yield Part(plain, False)
                plain = ""
            escaped += _escape(character)
    if plain or escaped:
        yield Part(plain or escaped, not plain)


def shown(token: bytes) -> str:
    r"""Return a token as one string.

    >>> print(shown(b" the"), shown(b"\xe2\x80"))
     the \xe2\x80
    """
    return "".join(part.text for part in shown_parts(token))


def is_incomplete(token: bytes) -> bool:
    """Return whether the bytes of a token are not valid UTF-8."""
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False


def _combines(character: str) -> bool:
    return category(character).startswith("M")


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _SIGNS.get(character) or ascii(character)[1:-1]


def explanation_lines(explanation: Explanation, steps: bool) -> Iterator[str]:
    """Yield the lines of an explanation as plain text: a pre-token or special token in each, with its tokens.

    Args:
        explanation: the explanation.
        steps: whether the merges follow each pre-token, and why its neighbours did not merge.
    """
    from rich.cells import cell_len

    rows = [
        (span(piece.characters), span(piece.span), literal(piece.bytes), " ".join(map(_token, piece.tokens)))
        for piece in explanation.pieces
    ]
    rows.insert(0, ("chars", "bytes", "pre-token", "tokens:ids"))
    widths = [min(max(cell_len(row[column]) for row in rows), _ALIGNED) for column in range(3)]
    headings, *lines = (
        "  ".join([*(text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )
    yield headings
    borders = iter(explanation.borders)
    for index, (line, piece) in enumerate(zip(lines, explanation.pieces, strict=True)):
        before = next(borders) if index else None
        if steps and before is not None:
            last = explanation.pieces[index - 1].tokens[-1]
            yield f"    {border_sentence(before, last, piece.tokens[0])}"
        yield line
        if steps:
            yield from (f"    {step_sentence(step)}" for step in piece.steps)
            if piece.kind == "whole token":
                yield f"    {KEPT_WHOLE}"
        for left, right in pairwise(piece.tokens):
            border = next(borders)
            if steps:
                yield f"    {border_sentence(border, left, right)}"
    yield summary_sentence(explanation)


def step_sentence(step: Step) -> str:
    """Say which merge was applied.

    >>> from bpeflow.inspection.explanation import Step
    >>> step_sentence(Step(8, 1234, b"t", b"he", 264, 0))
    "'t' + 'he' → 'the' (rank 8, count 1,234)"
    """
    return f"{literal(step.left)} + {literal(step.right)} → {literal(step.left + step.right)} ({_rank(step)})"


def border_sentence(border: Border, left: Token, right: Token) -> str:
    """Say why two neighbouring tokens did not merge."""
    pair = f"{literal(left.bytes)} | {literal(right.bytes)}"
    if border.reason == "no merge":
        missed = "; ".join(map(_missed, border.missed[:_LISTED]))
        more = f"; and {len(border.missed) - _LISTED:,} more" if len(border.missed) > _LISTED else ""
        return f"{pair}: no merge joins them" + (f"; {missed}{more}" if missed else "")
    exists = f", though a merge of rank {border.rank:,} would join them" if border.rank is not None else ""
    return f"{pair}: {_BORDERS[border.reason]}{exists}"


def summary_sentence(explanation: Explanation) -> str:
    """Say how many tokens a text has.

    >>> from bpeflow.inspection.explanation import Explanation
    >>> summary_sentence(Explanation("", (), ()))
    '0 tokens in 0 pre-tokens: 0 characters, 0 bytes'
    """
    tokens, size = len(explanation.tokens), len(explanation.text.encode())
    specials = sum(piece.kind == "special token" for piece in explanation.pieces)
    of_these = f", {specials:,} of them special" if specials else ""
    ratio = f", {size / tokens:.2f} bytes per token" if tokens else ""
    pretokens = format_count(len(explanation.pieces) - specials, "pre-token")
    return (
        f"{format_count(tokens, 'token')}{of_these} in {pretokens}: "
        f"{format_count(len(explanation.text), 'character')}, {format_count(size, 'byte')}{ratio}"
    )


def span(part: tuple[int, int]) -> str:
    """Return start and end of a part of a text."""
    return f"{part[0]}-{part[1]}"


def literal(token: bytes) -> str:
    """Return a token as a Python literal, in characters that can be printed."""
    return show_token(token, _TOKEN_WIDTH)


def _token(token: Token) -> str:
    return f"{literal(token.bytes)}:{token.id}"


def _missed(missed: Missed) -> str:
    by = missed.taken_by
    order = "lower" if by.rank < missed.rank else "the same, further left"
    return (
        f"{literal(missed.left)} + {literal(missed.right)} ({_rank(missed)}) was possible until "
        f"{literal(by.left)} + {literal(by.right)} came first, whose rank {by.rank:,} is {order}"
    )


def _rank(merge: Step | Missed) -> str:
    return f"rank {merge.rank:,}" + (f", count {merge.count:,}" if merge.count is not None else "")
