"""Pre-tokens are cut into pieces where no merge joins two bytes.

New ones are, to merge each piece alone. Where most text is in long ones, all are cut, and their pieces are looked up
instead.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from random_vocabularies import merge_as_defined
from small import PARTS, small_spec

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS
from bpeflow.vocab import Merge, Vocab

pytestmark = pytest.mark.usefixtures("native_library")

#: Merges with parts of one byte and of several on each side; of zero bytes; one before the merges of its parts; and one
#: that makes a piece of `ba`, which no merge makes.
_VOCABULARIES: list[list[Merge]] = [
    [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd"), (b"abcd", b"abcd"), (b"d", b"cd")],
    [(b"a", b"b"), (b"b", b"\0"), (b"c", b"d"), (b"ab", b"ab"), (b"cd", b"ab")],
    [(b"ab", b"cd"), (b"a", b"b"), (b"c", b"d"), (b"cd", b"a"), (b"b", b"cda")],
    [(b"c", b"d"), (b"cd", b"b"), (b"cdb", b"a")],
]


@pytest.mark.parametrize("whole_tokens", [False, True])
@pytest.mark.parametrize("merges", _VOCABULARIES)
def test_pieces_are_merged_as_the_whole(merges: list[Merge], whole_tokens: bool) -> None:
    letters = sorted({bytes([byte]) for merge in merges for byte in b"".join(merge)} | {b"a"})
    vocab = Vocab((*Vocab.build(merges).tokens, b"ba"), {}, merges)
    spec = TokenizerSpec(vocab, r"(?s).+", whole_tokens=whole_tokens)
    encoder = NativeEncoder(spec)
    for length in range(1, 7):
        for text in map(b"".join, product(letters, repeat=length)):
            assert encoder.encode(text, NO_SPECIAL_TOKENS) == merge_as_defined(text, spec), text


def test_characters_of_several_bytes_are_joined() -> None:
    """Both sides of each cut are in characters of three bytes, the last of which many characters share."""
    to, kyo, other = "東".encode(), "京".encode(), "杭".encode()
    within = [(text[:n], text[n : n + 1]) for text in (to, kyo) for n in (1, 2)]
    spec = TokenizerSpec(Vocab.build([*within, (to, kyo), (kyo, to)]), r"(?s).+")
    encoder = NativeEncoder(spec)
    for length in range(1, 6):
        for text in map(b"".join, product([to, kyo, other], repeat=length)):
            assert encoder.encode(text, NO_SPECIAL_TOKENS) == merge_as_defined(text, spec), text.decode()


@pytest.mark.parametrize("whole_tokens", [False, True])
@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
@pytest.mark.parametrize("pattern", ["superbpe", r"[\s\S]+", r"[a-z ]+", "gpt2"])
def test_long_pretokens_are_encoded_by_piece(pattern: str, unmatched: UnmatchedPolicy, whole_tokens: bool) -> None:
    """Pieces and pre-tokens are shorter and longer than what is cut at a time (3072 bytes), and end anywhere in it."""
    spec = replace(small_spec(pattern, whole_tokens), unmatched=unmatched)
    encoder, python = NativeEncoder(spec), PythonEncoder(spec)
    for seed in range(4):
        choose = random.Random(seed)
        few, many = choose.choices([*PARTS, " the", "then", "word "], k=9), choose.choices(PARTS, k=2000)
        lengths = [1, 2, 700, 3071, 3072, 3073]
        texts = ["".join(many), few[0], "".join(part * choose.choice(lengths) for part in few), "".join(many[:900])]
        ids, ends = encoder.encode_batch(texts, NO_SPECIAL_TOKENS, np.dtype(np.uint32))
        expected_ids, expected_ends = python.encode_batch(texts, NO_SPECIAL_TOKENS, np.dtype(np.uint32))
        assert np.array_equal(ids, expected_ids), seed
        assert np.array_equal(ends, expected_ends), seed
