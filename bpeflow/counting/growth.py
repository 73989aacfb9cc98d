"""The growth of a corpus's vocabulary: how many distinct pre-tokens its first bytes have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GrowthPoint:
    """The numbers of distinct pre-tokens and of positions in the first part of a corpus.

    Attributes:
        bytes: text counted so far.
        pretokens: pre-tokens in it, including repetitions.
        distinct: distinct pre-tokens.
        positions: bytes of the distinct pre-tokens, the size of the merge step.
    """

    bytes: int
    pretokens: int
    distinct: int
    positions: int
