"""Offsets: the part of the text that each token comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.vocab import Vocab

#: The (start, end) of each token.
Offsets = list[tuple[int, int]]


def token_lengths(text: bytes, ids: list[int], specials: SpecialTokens, encoder: Encoder, vocab: Vocab) -> list[int]:
    """Return the number of bytes of `text` that each of its `ids` stands for."""
    tokens = vocab.decoded_tokens
    if all(tokens[token_id] == special for special, token_id in specials.ids.items()):
        return [len(tokens[token_id]) for token_id in ids]
    # A special token shares its id with other bytes, so the id alone does not determine the length. Encode again with
    # a separate id for each special token.
    unshared = SpecialTokens({special: len(tokens) + number for number, special in enumerate(specials.ids)})
    tokens += tuple(specials.ids)
    return [len(tokens[token_id]) for token_id in encoder.encode(text, unshared)]


def token_offsets(
    text: bytes, lengths: Sequence[int], specials: SpecialTokens, pretokenizer: Pretokenizer, in_bytes: bool
) -> Offsets:
    """Return the offsets of the tokens of `text`, given the length of each in bytes.

    In characters, a token covers every character that its bytes belong to, as in HuggingFace tokenizers. Text that a
    custom pattern does not match, and that is dropped, is outside all offsets.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.asarray(lengths, np.int64)
    if pretokenizer.custom and pretokenizer.unmatched == "drop":
        matched = _matched_positions(text, specials, pretokenizer)
        starts, ends = matched[starts], matched[ends - 1] + 1
    if not in_bytes:
        first_bytes = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
        character_of_byte = np.cumsum(first_bytes) - 1
        starts, ends = character_of_byte[starts], character_of_byte[ends - 1] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _matched_positions(text: bytes, specials: SpecialTokens, pretokenizer: Pretokenizer) -> NDArray[np.int64]:
    """Return the positions of the bytes of `text` that are in a special token or in a pre-token."""
    matched = np.zeros(len(text), np.bool_)
    start = 0
    for match in specials.matches(text):
        _mark_pretokens(matched, text, start, match.start(), pretokenizer)
        matched[match.start() : match.end()] = True
        start = match.end()
    _mark_pretokens(matched, text, start, len(text), pretokenizer)
    return np.flatnonzero(matched)


def _mark_pretokens(matched: NDArray[np.bool_], text: bytes, start: int, end: int, pretokenizer: Pretokenizer) -> None:
    """Mark the bytes that are in a pre-token of the ordinary text from `start` to `end`."""
    ordinary = text[start:end].decode()
    position = 0
    for first, last in pretokenizer.match_spans(ordinary):
        start += len(ordinary[position:first].encode())
        length = len(ordinary[first:last].encode())
        matched[start : start + length] = True
        start, position = start + length, last
