"""Where tokens stand in their text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.special_tokens import SpecialTokens

#: The (start, end) of each token.
Offsets = list[tuple[int, int]]


def token_offsets(
    text: bytes, lengths: Sequence[int], specials: SpecialTokens, pretokenizer: Pretokenizer, in_bytes: bool
) -> Offsets:
    """The places of the tokens of `text`, whose bytes number `lengths`.

    In characters a token has all those that its bytes belong to, as HuggingFace tokenizers tells it. What a custom
    pattern does not match is passed over.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.asarray(lengths, np.int64)
    if pretokenizer.custom:
        taken = _taken(text, specials, pretokenizer)
        starts, ends = taken[starts], taken[ends - 1] + 1
    if not in_bytes:
        first_bytes = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
        character = np.cumsum(first_bytes) - 1  # of each byte
        starts, ends = character[starts], character[ends - 1] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _taken(text: bytes, specials: SpecialTokens, pretokenizer: Pretokenizer) -> NDArray[np.int64]:
    """The places of all bytes of `text` that are in a special token or in a pre-token."""
    taken = np.zeros(len(text), np.bool_)
    start = 0
    for match in specials.matches(text):
        _mark(taken, text, start, match.start(), pretokenizer)
        taken[match.start() : match.end()] = True
        start = match.end()
    _mark(taken, text, start, len(text), pretokenizer)
    return np.flatnonzero(taken)


def _mark(taken: NDArray[np.bool_], text: bytes, start: int, end: int, pretokenizer: Pretokenizer) -> None:
    """Mark the bytes of `text` from `start` to `end`, ordinary text, that are in a pre-token."""
    ordinary = text[start:end].decode()
    position = 0
    for match in pretokenizer.compiled.finditer(ordinary):
        start += len(ordinary[position : match.start()].encode())
        length = len(match.group().encode())
        taken[start : start + length] = True
        start, position = start + length, match.end()
