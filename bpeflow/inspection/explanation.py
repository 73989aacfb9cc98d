"""`Explanation`: the tokens of a text, the merges that made them, and why no more applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bpeflow.inspection.markup import notebook_html
from bpeflow.inspection.plain import explanation_lines

#: Start and end of a part of a text.
Span = tuple[int, int]

#: Why two neighbouring tokens did not merge.
Reason = Literal["no merge", "pre-token", "special token", "dropped text"]


@dataclass(frozen=True, slots=True)
class Step:
    """A merge that was applied.

    Attributes:
        rank: its rank.
        count: the number of times that the pair occurred in training when it was merged; None if it is unknown.
        left: the bytes of the left token.
        right: the bytes of the right token.
        id: the id of the result.
        start: where the left token starts, in bytes of the pre-token.
    """

    rank: int
    count: int | None
    left: bytes
    right: bytes
    id: int
    start: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A merge that could have been applied across the border of two tokens, had not another one taken a part of it.

    Attributes:
        rank: its rank.
        count: its training count; None if it is unknown.
        left: the bytes of the left token.
        right: the bytes of the right token.
        taken_by: the merge that came first, as its rank is lower or its place is further left.
    """

    rank: int
    count: int | None
    left: bytes
    right: bytes
    taken_by: Step


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


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text.

    Attributes:
        id: its id.
        bytes: its bytes, which are a part of the normalized text.
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

    kind: Literal["pre-token", "whole token", "special token"]
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
class Explanation:
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

    def __str__(self) -> str:
        return "\n".join(explanation_lines(self, steps=True))

    def _repr_html_(self) -> str:
        return notebook_html(self)
