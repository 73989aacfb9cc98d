"""Offsets: the part of the text that each token comes from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from bpeflow.pretokenize.normalizer import Normalizer
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import SpecialTokens
from bpeflow.vocab import Vocab

#: The (start, end) of each token.
Offsets = list[tuple[int, int]]


def token_lengths(
    text: bytes, ids: list[int], specials: SpecialTokens, encoder: Encoder, vocab: Vocab
) -> NDArray[np.int64]:
    """Return the number of bytes of the normalized `text` in each of its `ids`."""
    tokens, found = vocab.decoded_tokens, {*ids}
    if any(token_id in found and tokens[token_id] != special for special, token_id in specials.ids.items()):
        # A special token shares its id with other bytes, so the id alone does not determine the length. Encode again
        # with a separate id for each special token.
        unshared = SpecialTokens({special: len(tokens) + number for number, special in enumerate(specials.ids)})
        ids, tokens = encoder.encode(text, unshared), tokens.plus(specials.ids)
    at = np.array(ids, np.int64)
    return tokens.offsets[at + 1] - tokens.offsets[at]


def token_offsets(
    text: bytes,
    lengths: Sequence[int] | NDArray[np.int64],
    specials: SpecialTokens,
    pretokenizer: Pretokenizer,
    in_bytes: bool,
) -> Offsets:
    """Return the offsets of the tokens of `text`, given the length of each in bytes.

    In characters, a token covers every character that its bytes belong to, as in HuggingFace tokenizers. Text that a
    custom pattern does not match, and that is dropped, is outside all offsets. `lengths` and the pattern refer to the
    normalized text, and the offsets to `text`.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.asarray(lengths, np.int64)
    normalizer = pretokenizer.normalizer
    pieces = [*specials.split(text)]
    if pretokenizer.custom and pretokenizer.unmatched == "drop":
        matched = np.flatnonzero(np.concatenate([_matched(*piece, pretokenizer) for piece in pieces]))
        starts, ends = matched[starts], matched[ends - 1] + 1
    if normalizer and normalizer.utf8(text) is not text:
        first, last = _origins(pieces, normalizer)
        starts, ends = first[starts], last[ends - 1]
    if not in_bytes:
        first_bytes = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
        character_of_byte = np.cumsum(first_bytes) - 1
        starts, ends = character_of_byte[starts], character_of_byte[ends - 1] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _matched(piece: bytes, special_id: int | None, pretokenizer: Pretokenizer) -> NDArray[np.bool_]:
    """Return which bytes of a piece, once it is normalized, are in a special token or in a pre-token."""
    if special_id is not None:
        return np.ones(len(piece), np.bool_)
    normalized = pretokenizer.normalizer.utf8(piece)
    text, matched = normalized.decode(), np.zeros(len(normalized), np.bool_)
    start = position = 0
    for first, last in pretokenizer.match_spans(text):
        start += len(text[position:first].encode())
        length = len(text[first:last].encode())
        matched[start : start + length] = True
        start, position = start + length, last
    return matched


def _origins(pieces: Sequence[tuple[bytes, int | None]], normalizer: Normalizer) -> tuple[NDArray[np.int64], ...]:
    """Return, for each byte of the normalized text, where the bytes that it comes from start and end in the text."""
    starts: list[int] = []
    ends: list[int] = []
    before = 0
    for piece, special_id in pieces:
        if special_id is not None or normalizer.utf8(piece) is piece:
            starts += range(before, before + len(piece))
            ends += range(before + 1, before + len(piece) + 1)
        else:
            text = piece.decode()
            position = [before, *(before + end for end in accumulate(len(character.encode()) for character in text))]
            normalized, origins = normalizer.origins(text)
            for character, (start, end) in zip(normalized, origins, strict=True):
                size = len(character.encode())
                kept = text[start:end] == character
                starts += range(position[start], position[end]) if kept else [position[start]] * size
                ends += range(position[start] + 1, position[end] + 1) if kept else [position[end]] * size
        before += len(piece)
    return np.array(starts, np.int64), np.array(ends, np.int64)
