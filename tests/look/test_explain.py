"""Explanations have the tokens of `encode`, and merges that make them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st
from normalized_text import CHANGED_PARTS, NORMALIZERS

from bpeflow import Tokenizer
from bpeflow.look.explanation import Explanation
from bpeflow.vocab import Merge, Vocab

SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<a>"]

#: Repeated tokens, overlaps, a result that can be made in two ways, characters of several bytes.
MERGES: list[Merge] = [
    *[(b"a", b"a"), (b"aa", b"a"), (b"aa", b"aa"), (b"b", b"a"), (b"a", b"b"), (b"ab", b"ab"), (b" ", b" ")],
    *[(b" ", b"a"), (b"'", b"s"), (b"\xc3", b"\xa9"), (b"\n", b"\n"), (b"w", b"o"), (b"r", b"d"), (b"wo", b"rd")],
    *[(b" ", b"word"), (b"1", b"2"), (b"\xe6", b"\x97"), (b"\xe6\x97", b"\xa5"), (b"a", b"aa"), (b"th", b"e")],
    *[(b"t", b"h"), (b"\xcc", b"\x81"), (b"e", b"\xcc\x81"), (b"w", b"\xc3")],
]
VOCAB = Vocab.build(MERGES, SPECIALS).annotated(merge_counts=tuple(range(100, 100 - len(MERGES), -1)))

#: Every named pattern; patterns that leave text unmatched; several patterns, one after another.
PATTERNS = ["gpt2", "cl100k", "o200k", "llama3", "qwen2", r"\w+", (r"\d", r"\w+")]

parts = st.sampled_from([*"ab", "aaaa", "abab", " word", "'s", "é", "日", "😀", "\n", "12", "the", *SPECIALS, "<|end"])
texts = st.lists(parts | st.sampled_from(CHANGED_PARTS) | adversarial_text, max_size=12).map("".join)


def tokenizer_of(pattern: Any, unmatched: Any = None, normalizer: Any = (), whole: bool = False) -> Tokenizer:
    return Tokenizer(
        VOCAB, MERGES, pattern=pattern, unmatched=unmatched, normalizer=normalizer, whole_tokens=whole, encoder="python"
    )


TOKENIZERS = [
    *(tokenizer_of(pattern, unmatched) for pattern in PATTERNS for unmatched in ("isolate", "drop")),
    *(tokenizer_of("gpt2", normalizer=normalizer) for normalizer in NORMALIZERS),
    *(tokenizer_of(pattern, whole=True) for pattern in ("cl100k", r"\w+")),
    tokenizer_of(r"\w+", "drop", "nfd"),
]


def merged(pretoken: bytes, explanation_steps: Any) -> list[bytes]:
    """Apply steps to a pre-token, each where it says."""
    tokens = {position: bytes([byte]) for position, byte in enumerate(pretoken)}
    for step in explanation_steps:
        right = step.start + len(step.left)
        assert (tokens[step.start], tokens.pop(right)) == (step.left, step.right)
        tokens[step.start] = step.left + step.right
    return [tokens[position] for position in sorted(tokens)]


def check(tokenizer: Tokenizer, explanation: Explanation, ids: list[int]) -> None:
    assert explanation.ids == ids
    assert len(explanation.borders) == max(len(ids) - 1, 0)
    borders = iter(explanation.borders)
    for number, piece in enumerate(explanation.pieces):
        if number:
            assert next(borders).reason != "no merge"
        if piece.kind == "pre-token":
            assert merged(piece.bytes, piece.steps) == [token.bytes for token in piece.tokens]
            assert all(MERGES[step.rank] == (step.left, step.right) for step in piece.steps)
            assert all(step.count == 100 - step.rank for step in piece.steps)
            assert all(tokenizer.vocab.decoded_tokens[step.id] == step.left + step.right for step in piece.steps)
        else:
            assert len(piece.tokens) == 1
            assert not piece.steps
        for left, right in pairwise(piece.tokens):
            border = next(borders)
            assert border.reason == "no merge"
            assert (left.bytes, right.bytes) not in MERGES
            for missed in border.missed:
                assert MERGES[missed.merge.rank] == (missed.merge.left, missed.merge.right)
                assert missed.taken_by in piece.steps
                assert missed.merge.rank >= missed.taken_by.rank


@settings(max_examples=100)
@given(tokenizer=st.sampled_from(TOKENIZERS), text=texts, allowed=st.sampled_from(["all", (), ("<a>",)]))
def test_tokens_and_offsets_are_those_of_encode(tokenizer: Tokenizer, text: str, allowed: Any) -> None:
    explanation = tokenizer.explain(text, allowed_special=allowed)
    ids, offsets = tokenizer.encode_with_offsets(text, allowed_special=allowed)
    check(tokenizer, explanation, ids)
    assert [token.characters for token in explanation.tokens] == offsets
    _, in_bytes = tokenizer.encode_with_offsets(text, allowed_special=allowed, byte_offsets=True)
    assert [token.span for token in explanation.tokens] == in_bytes
    assert b"".join(token.bytes for token in explanation.tokens) == tokenizer.decode_bytes(ids)


def test_a_shared_id_of_a_special_token_is_explained_by_its_place() -> None:
    """In HuggingFace's mode a special token can share its id with a merge that has other bytes."""
    tokenizer = Tokenizer(
        Vocab.build([(b" ", b"a")], ["Ġa"], special_tokens_first=True, reuse_tokens=True), [(b" ", b"a")]
    )
    explanation = tokenizer.explain(" aĠa")
    assert explanation.ids == tokenizer.encode(" aĠa")
    assert [piece.kind for piece in explanation.pieces] == ["pre-token", "special token"]
    assert [token.bytes for token in explanation.tokens] == [b" a", "Ġa".encode()]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return tokenizer_of("gpt2")


def test_a_missed_merge_names_the_one_that_took_its_part(tokenizer: Tokenizer) -> None:
    explanation = tokenizer.explain("bab")  # (b, a) has rank 3 and (a, b) rank 4
    assert [token.bytes for token in explanation.tokens] == [b"ba", b"b"]
    [border] = explanation.borders
    [missed] = border.missed
    assert (missed.merge.left, missed.merge.right, missed.merge.rank) == (b"a", b"b", 4)
    assert (missed.taken_by.left, missed.taken_by.right, missed.taken_by.rank) == (b"b", b"a", 3)


def test_a_merge_further_left_takes_a_part_of_the_same_merge(tokenizer: Tokenizer) -> None:
    explanation = tokenizer.explain("é" + "baba")
    assert [[token.bytes for token in piece.tokens] for piece in explanation.pieces] == [["é".encode(), b"ba", b"ba"]]
    [aaa] = tokenizer_of("gpt2").explain("aaaaaaa").pieces
    assert aaa.steps[0].start == 0
    assert [step.start for step in aaa.steps if step.rank == 0] == [0, 2, 4]


def test_borders_say_what_merges_do_not_cross(tokenizer: Tokenizer) -> None:
    explanation = tokenizer.explain("b a<a>a")
    assert [(border.reason, border.rank) for border in explanation.borders] == [
        ("pre-token", None),
        ("special token", None),
        ("special token", None),
    ]
    assert [border.rank for border in tokenizer_of("[ab]").explain("ab").borders] == [4]  # which would join them


def test_dropped_text_is_a_border() -> None:
    explanation = tokenizer_of(r"\w", "drop").explain("a! b")
    assert [border.reason for border in explanation.borders] == ["dropped text"]
    assert [token.span for token in explanation.tokens] == [(0, 1), (3, 4)]


def test_a_whole_token_is_not_merged() -> None:
    vocab = Vocab.build([(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")])
    for whole, kind, steps in ((True, "whole token", 0), (False, "pre-token", 1)):
        [piece] = Tokenizer(vocab, vocab.merges, whole_tokens=whole).explain("abc").pieces
        assert (piece.kind, len(piece.steps)) == (kind, steps)


def test_counts_are_none_if_they_are_unknown() -> None:
    tokenizer = Tokenizer(dict(VOCAB), MERGES, SPECIALS)
    assert [step.count for step in tokenizer.explain("aa").pieces[0].steps] == [None]


def test_the_empty_text_has_nothing_to_explain(tokenizer: Tokenizer) -> None:
    explanation = tokenizer.explain("")
    assert (explanation.pieces, explanation.borders, explanation.ids) == ((), (), [])


def test_arguments_are_those_of_encode(tokenizer: Tokenizer) -> None:
    from bpeflow import InvalidTextError, SpecialTokenError

    with pytest.raises(SpecialTokenError, match="which disallowed_special forbids"):
        tokenizer.explain("<a>", allowed_special=(), disallowed_special="all")
    with pytest.raises(InvalidTextError):
        tokenizer.explain("\udc80")


def test_an_empty_text_has_a_summary() -> None:
    assert Explanation("", (), ()).summary == "0 tokens in 0 pre-tokens: 0 characters, 0 bytes"
