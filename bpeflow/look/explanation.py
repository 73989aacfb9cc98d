"""`Explanation`: the tokens of a text, the merges that made them, and why no more applied, as data and as rich text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import count, islice, pairwise
from typing import Literal

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from bpeflow._util.text import Shown, format_count, short_repr
from bpeflow.look.render import append_token, is_incomplete, literal, make_page, to_html

#: Start and end of a part of a text.
Span = tuple[int, int]

#: Why two neighbouring tokens did not merge.
Reason = Literal["no merge", "pre-token", "special token", "dropped text"]

#: What a piece of a text is; a `whole token` is a pre-token that is not merged, as it is a token.
Kind = Literal["pre-token", "whole token", "special token"]

#: What is between two tokens that merges do not reach across.
_BORDERS: dict[Reason, str] = {
    "pre-token": "border of pre-tokens",
    "special token": "border of a special token",
    "dropped text": "text between them that the pattern does not match",
}

#: Columns up to which shorter entries are padded to the longest.
_ALIGNED = 28

#: Merges that were missed at a border, at most, that are listed.
_LISTED = 3

#: Grounds that tokens take in turn: dark text on them can be read on light and dark screens.
_TOKENS = [
    Style(color="black", bgcolor=ground)
    for ground in ("#a6c8ff", "#a8dab5", "#fdd663", "#f6aea9", "#d7aefb", "#a1e4f2")
]

_SPECIAL = Style(color="#ffffff", bgcolor="#5f6368", bold=True)
_DIM = Style(dim=True)
_DROPPED = Style(dim=True, strike=True, meta={"title": "the pattern does not match this text"})

_MONOSPACE = "font-family: ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap"


@dataclass(frozen=True, slots=True)
class Step:
    """A merge at a place in a pre-token.

    Attributes:
        rank: its rank.
        count: the number of times that the pair occurred in training when it was merged; None if it is unknown.
        left: the bytes of the left token.
        right: the bytes of the right token.
        id: the id of the result.
        start: where the left token starts, in bytes of the pre-token.
        stage: the stage of training that learned it, 1 or 2, with superwords; None if it is unknown.
    """

    rank: int
    count: int | None
    left: bytes
    right: bytes
    id: int
    start: int
    stage: int | None = None

    def __str__(self) -> str:
        """Say which merge was applied."""
        return f"{self.pair} → {literal(self.left + self.right)} ({self.known})"

    @property
    def pair(self) -> str:
        """The two tokens."""
        return f"{literal(self.left)} + {literal(self.right)}"

    @property
    def known(self) -> str:
        """The rank, and the stage and the count if they are known."""
        stage = f"stage {self.stage}, " if self.stage is not None else ""
        return f"{stage}rank {self.rank:,}" + (f", count {self.count:,}" if self.count is not None else "")


@dataclass(frozen=True, slots=True)
class Missed:
    """A merge that could have been applied across the border of two tokens, had not another one taken a part of it.

    Attributes:
        merge: the merge.
        taken_by: the merge that came first, as its rank is lower or its place is further left.
    """

    merge: Step
    taken_by: Step

    def __str__(self) -> str:
        """Say which merge came first."""
        by = self.taken_by
        place = f"rank {by.rank:,}" if by.rank < self.merge.rank else "further left"
        return f"{self.merge.pair} ({self.merge.known}) was possible, but {by.pair} ({place}) came first"


@dataclass(frozen=True, slots=True)
class Border:
    """Why two neighbouring tokens did not merge.

    Attributes:
        reason: `no merge` in the vocabulary joins the two; or they belong to different pre-tokens (`pre-token`), which
            merges never cross; or one of them is a `special token`; or there was `dropped text` between them.
        rank: the rank of the merge that would join them if they were neighbours in a pre-token; None if there is none.
        missed: the merges that were applicable across the border before its tokens were complete, in the order in
            which they ceased to be.
    """

    reason: Reason
    rank: int | None = None
    missed: tuple[Missed, ...] = ()

    def between(self, left: Token, right: Token) -> str:
        """Say why two neighbouring tokens did not merge."""
        pair = f"{literal(left.bytes)} | {literal(right.bytes)}"
        if self.reason == "no merge":
            more = [f"and {len(self.missed) - _LISTED:,} more"] if len(self.missed) > _LISTED else []
            return "; ".join([f"{pair}: no merge joins them", *map(str, self.missed[:_LISTED]), *more])
        exists = f", though a merge of rank {self.rank:,} would join them" if self.rank is not None else ""
        return f"{pair}: {_BORDERS[self.reason]}{exists}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text.

    Attributes:
        id: its id.
        bytes: its bytes in the normalized text.
        characters: the characters of the text that its bytes belong to, as in `Tokenizer.encode_with_offsets`.
        span: the same in bytes of UTF-8.
    """

    id: int
    bytes: bytes
    characters: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Piece:
    """A pre-token or a special token.

    Attributes:
        kind: which of the two; or `whole token`, a pre-token that became a token without merging, as the tokenizer has
            `whole_tokens`.
        tokens: its tokens.
        steps: the merges in the order in which they were applied.
    """

    kind: Kind
    tokens: tuple[Token, ...]
    steps: tuple[Step, ...] = ()

    @property
    def bytes(self) -> bytes:
        """The bytes, normalized."""
        return b"".join(token.bytes for token in self.tokens)

    @property
    def characters(self) -> Span:
        """The characters of the text that it comes from."""
        return self.tokens[0].characters[0], self.tokens[-1].characters[1]

    @property
    def span(self) -> Span:
        """The same in bytes of UTF-8."""
        return self.tokens[0].span[0], self.tokens[-1].span[1]


@dataclass(frozen=True)
class Explanation(Shown):
    """The tokens of a text and how they came to be. A notebook shows it in colours, `print` as plain text.

    Attributes:
        text: the text.
        pieces: its pre-tokens and special tokens.
        borders: for each two neighbouring tokens, why they did not merge: one entry fewer than `tokens`.

    >>> from bpeflow import Tokenizer
    >>> tokenizer = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> explanation = tokenizer.explain("low slow")
    >>> explanation.ids == tokenizer.encode("low slow")
    True
    >>> [(step.rank, step.count, step.left, step.right) for step in explanation.pieces[0].steps]
    [(0, 4, b'o', b'w'), (1, 4, b'l', b'ow')]
    >>> [border.reason for border in explanation.borders]
    ['pre-token', 'no merge', 'no merge']
    """

    text: str
    pieces: tuple[Piece, ...]
    borders: tuple[Border, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of all pieces."""
        return tuple(token for piece in self.pieces for token in piece.tokens)

    @property
    def ids(self) -> list[int]:
        """The ids, as `Tokenizer.encode` returns them."""
        return [token.id for token in self.tokens]

    def coloured(self) -> Text:
        """Return the text with its tokens in colours, and a bar between two pre-tokens of a line."""
        numbers, text, end = count(), Text(), 0
        for piece in self.pieces:
            start = piece.characters[0]
            if end < start:
                append_token(text, self.text[end:start].encode(), _DROPPED)
            elif text and not text.plain.endswith("\n"):
                text.append("│", _DIM)
            for token in piece.tokens:
                append_token(text, token.bytes, _style(piece, next(numbers)) + Style(meta={"title": _title(token)}))
            end = piece.characters[1]
        if self.text[end:]:
            append_token(text, self.text[end:].encode(), _DROPPED)
        if text.plain.endswith("\n"):
            text.right_crop()
        return text

    def table(self, steps: bool = True) -> Text:
        """Return a line for each pre-token and special token, with its tokens, and a line with the number of all.

        Args:
            steps: whether the merges follow each pre-token, and why its neighbours did not merge.
        """
        rows = [("chars", "bytes", "pre-token")]
        rows += [
            ("{}-{}".format(*piece.characters), "{}-{}".format(*piece.span), literal(piece.bytes))
            for piece in self.pieces
        ]
        widths = [min(max(cell_len(row[column]) for row in rows), _ALIGNED) for column in range(3)]
        starts = [
            "".join(cell + " " * (width - cell_len(cell) + 2) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        lines = [Text(f"{starts[0]}tokens:ids", "bold")]
        numbers = count()
        borders = (border.between(*pair) for border, pair in zip(self.borders, pairwise(self.tokens), strict=True))
        for piece, start in zip(self.pieces, starts[1:], strict=True):
            notes = [*map(str, piece.steps)]
            if piece.kind == "whole token":
                notes.append("the pre-token is a token, so it is not merged")
            notes += islice(borders, len(piece.tokens))  # the last is the border to the next piece
            tokens = [
                Text.assemble((literal(token.bytes), _style(piece, next(numbers))), (f":{token.id}", _DIM))
                for token in piece.tokens
            ]
            lines.append(Text.assemble((start, _DIM), Text(" ").join(tokens)))
            if steps:
                lines += [Text(f"    {note}", _DIM) for note in notes]
        return Text("\n").join([*lines, Text(self.summary)])

    @property
    def summary(self) -> str:
        """The number of tokens, pre-tokens, characters and bytes."""
        tokens, size = len(self.tokens), len(self.text.encode())
        specials = sum(piece.kind == "special token" for piece in self.pieces)
        of_these = f", {specials:,} of them special" if specials else ""
        ratio = f", {size / tokens:.2f} bytes per token" if tokens else ""
        return (
            f"{format_count(tokens, 'token')}{of_these} in {format_count(len(self.pieces) - specials, 'pre-token')}: "
            f"{format_count(len(self.text), 'character')}, {format_count(size, 'byte')}{ratio}"
        )

    def __str__(self) -> str:
        return self.table().plain

    def to_html(self) -> str:
        """Return the text with its tokens in colours, as a fragment for pages. Each token has a tooltip."""
        return f'<div dir="auto" style="{_MONOSPACE}; line-height: 1.7">{to_html(self.coloured())}</div>'

    def to_page(self, title: str, steps: bool = True) -> str:
        """Return a self-contained page: the text with its tokens in colours, and the table of the pre-tokens."""
        return make_page(title, f'<div class="text">{self.to_html()}</div>\n{self._table_html(steps)}')

    def __repr__(self) -> str:
        return f"Explanation({short_repr(self.text)}: {self.summary.partition(':')[0]})"

    def _repr_html_(self) -> str:
        summary = f"<summary>{escape(self.summary)}</summary>"
        return f"{self.to_html()}<details>{summary}{self._table_html(steps=True)}</details>"

    def _table_html(self, steps: bool) -> str:
        return f'<div style="{_MONOSPACE}">{to_html(self.table(steps))}</div>'


def _style(piece: Piece, number: int) -> Style:
    return _SPECIAL if piece.kind == "special token" else _TOKENS[number % len(_TOKENS)]


def _title(token: Token) -> str:
    (start, end), (first, last) = token.characters, token.span
    incomplete = ", incomplete UTF-8" if is_incomplete(token.bytes) else ""
    return f"id {token.id}, characters {start}–{end}, bytes {first}–{last}{incomplete}"
