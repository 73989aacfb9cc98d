"""Figures about vocabularies, and the proof of tokens that are never reached."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_data

from bpeflow import Tokenizer
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import count_words
from bpeflow.look.render import is_incomplete
from bpeflow.look.vocabulary import (
    are_incomplete,
    count_scripts,
    inspect_vocab,
    is_part_of_utf8,
    never_tokens,
    reached_ids,
    shapes_of,
)
from bpeflow.vocab import Merge, Vocab

BYTES = {byte: bytes([byte]) for byte in range(256)}


def tokenizer_of(*merges: Merge, **options: object) -> Tokenizer:
    vocab = Vocab.build(merges)
    return Tokenizer(vocab, merges, **options)  # type: ignore[arg-type]


def never(tokenizer: Tokenizer) -> dict[bytes, str]:
    return {token.bytes: token.reason for token in never_tokens(tokenizer) if token.id >= 256}


def test_a_token_whose_own_bytes_merge_to_others_is_never_reached() -> None:
    tokenizer = tokenizer_of((b"b", b"c"), (b"a", b"b"), (b"ab", b"c"))  # bc always comes first in abc
    assert never(tokenizer) == {b"abc": "other tokens"}
    assert tokenizer.encode("abc") == [ord("a"), tokenizer.token_to_id(b"bc")]


@pytest.mark.parametrize("merges", [*product([(b"a", b"b"), (b"b", b"a"), (b"a", b"a")], repeat=2)])
def test_no_text_yields_tokens_that_are_never_reached(merges: tuple[Merge, Merge]) -> None:
    """Compare with all texts of two letters up to a length."""
    longer = [(merges[0][0] + merges[0][1], merges[1][0]), (merges[1][0], merges[0][0] + merges[0][1])]
    listed = list(dict.fromkeys([*merges, *longer]))
    tokenizer = tokenizer_of(*listed)
    yielded = {
        i for size in range(1, 9) for text in product("ab", repeat=size) for i in tokenizer.encode("".join(text))
    }
    made = {tokenizer.token_to_id(left + right) for left, right in listed}
    proved = {token.id for token in never_tokens(tokenizer) if token.reason == "other tokens"}
    assert proved.isdisjoint(yielded)
    assert made - proved <= yielded


def test_a_whole_token_may_be_reached_although_merging_does_not_yield_it() -> None:
    merges = ((b"b", b"c"), (b"a", b"b"), (b"ab", b"c"))
    tokenizer = tokenizer_of(*merges, whole_tokens=True)
    assert never(tokenizer) == {}
    assert tokenizer.encode("abc") == [258]
    assert (
        inspect_vocab(tokenizer).unproved == inspect_vocab(tokenizer_of(*merges)).unproved
    )  # only parts of characters


def test_bytes_that_no_text_has_are_never_reached() -> None:
    listed = {token.bytes: token.reason for token in never_tokens(tokenizer_of((b"\xc3", b"\xc3"), (b"\xa9", b" ")))}
    assert listed == {bytes([b]): "not UTF-8" for b in (0xC0, 0xC1, *range(0xF5, 0x100))} | {b"\xc3\xc3": "not UTF-8"}


def test_text_that_the_normalizer_changes_is_never_reached() -> None:
    tokenizer = tokenizer_of((b"A", b"b"), (b"a", b"b"), normalizer="lowercase")
    assert never(tokenizer) == {b"Ab": "normalized"}


def test_a_second_id_of_the_same_bytes_is_never_reached() -> None:
    tokenizer = Tokenizer(BYTES | {256: b"ab", 257: b"ab"}, [(b"a", b"b")])
    assert never(tokenizer) == {b"ab": "same bytes"}


def test_a_token_that_the_pattern_splits_is_unproved() -> None:
    tokenizer = tokenizer_of((b"a", b" "), (b" ", b"a"), pattern="gpt2")
    figures = inspect_vocab(tokenizer)
    assert b"a " in {token.bytes for token in figures.unproved}
    assert b" a" not in {token.bytes for token in figures.unproved}


def test_a_token_that_the_pattern_leaves_whole_in_some_texts_is_reached() -> None:
    assert 256 in reached_ids(tokenizer_of((b"a", b" "), pattern="superbpe", unmatched="isolate"))  # before a digit


def test_a_pattern_that_refuses_text_is_no_obstacle() -> None:
    tokenizer = tokenizer_of((b"a", b"b"), (b"!", b"!"), pattern="[a-z]+", unmatched="error")
    assert 256 in reached_ids(tokenizer)
    assert 257 not in reached_ids(tokenizer)


@settings(max_examples=50)
@given(st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace")), st.integers(0, 16), st.integers(0, 16))
def test_every_part_of_a_text_is_part_of_utf8(data: bytes, start: int, end: int) -> None:
    assert is_part_of_utf8(data[start:end])


@pytest.mark.parametrize(
    "part", [b"\xc0", b"\xf5", b"a\x80", b"\xe0\x80", b"\xed\xa0", b"\xc3a", b"\x80" * 4, b"\xf0\x9fa", b"\xf4\x90"]
)
def test_what_utf8_excludes_is_part_of_none(part: bytes) -> None:
    assert not is_part_of_utf8(part)


@pytest.mark.parametrize(
    ("token", "script"),
    [
        (b" the", "Latin"),
        ("été".encode(), "Latin"),
        ("世界".encode(), "Han"),
        ("日本の".encode(), "mixed"),
        ("שלום".encode(), "Hebrew"),
        ("ᚠ".encode(), "Runic"),
        ("𐎠".encode(), "other scripts"),
        (b"123", "digits"),
        (b" --", "punctuation and symbols"),
        ("😀".encode(), "punctuation and symbols"),
        ("ａ".encode(), "Latin"),
        (b"\n  ", "white space"),
        (b"\xe6\x97", "part of a character"),
        (b" \xd7", "white space"),
    ],
)
def test_scripts(token: bytes, script: str) -> None:
    scripts = scripts_of(b"\n", token, "世".encode(), b" ")
    expected = {"white space": 2, "Han": 1}
    assert scripts == expected | {script: expected.get(script, 0) + 1}
    assert scripts_of(token) == {script: 1}


def scripts_of(*tokens: bytes) -> dict[str, int]:
    return count_scripts(shapes_of(PackedBytes.of(tokens)))


@given(st.lists(st.one_of(st.binary(max_size=4), st.text("a\n\r \u3000\x1c€", max_size=6).map(str.encode)), max_size=8))
def test_a_shape_shows_words_and_incomplete_characters(tokens: list[bytes]) -> None:
    shapes = shapes_of(PackedBytes.of(tokens))
    assert [len(shape.replace("?", "").split()) for shape in shapes] == [*map(count_words, tokens)]
    assert are_incomplete(shapes).tolist() == [*map(is_incomplete, tokens)]


def test_parts_of_characters_are_in_no_script() -> None:
    assert scripts_of() == {}
    assert scripts_of(b"\xe6", b"\x97") == {"part of a character": 2}


def test_figures_of_a_trained_tokenizer() -> None:
    tokenizer = Tokenizer.train(iter(["low low low lower", "日日日"]), vocab_size=262)
    figures = inspect_vocab(tokenizer, longest=2)
    assert (figures.ids, figures.unused_ids, figures.merges) == (262, 0, 5)
    assert figures.special_tokens == {"<|endoftext|>": 256}
    assert sum(figures.lengths.values()) == sum(figures.scripts.values()) == 261
    assert [len(token.bytes) for token in figures.longest] == sorted(
        (len(token) for i, token in enumerate(tokenizer.vocab.tokens) if i != 256), reverse=True
    )[:2]
    assert {entry.rank: entry.count for entry in figures.merge_counts} == {
        0: tokenizer.vocab.merge_counts[0],  # type: ignore[index]
        4: tokenizer.vocab.merge_counts[4],  # type: ignore[index]
    }
    assert inspect_vocab(Tokenizer(dict(tokenizer.vocab), tokenizer.merges)).merge_counts == ()


@pytest.mark.slow
def test_every_token_of_gpt2_but_impossible_bytes_can_be_merged() -> None:
    tokenizer = Tokenizer.load(real_data("vocabs/r50k_base.tiktoken"))
    assert {token.reason for token in never_tokens(tokenizer)} == {"not UTF-8"}
    assert tokenizer.explain(" the").ids == tokenizer.encode(" the")
