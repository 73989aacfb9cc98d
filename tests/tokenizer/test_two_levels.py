"""Encoding in two levels gives the ids of merging pre-tokens whole, wherever the second level begins."""

from __future__ import annotations

import random
from functools import cache
from itertools import chain, product
from unittest.mock import patch

import numpy as np
import pytest
from how_many import one_in
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import published_spec
from random_vocabularies import merge_as_defined, trained_vocabularies, vocabularies
from real_data import real_text_start
from small import spec_of
from superword_tokenizers import train_superwords
from test_native_encoder import ATOMS, CACHES, INSTRUCTIONS, repetitions, texts

from bpeflow import Tokenizer
from bpeflow._util.text import UnmatchedPolicy
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer import parallel
from bpeflow.tokenizer.native_encoder import NativeEncoder, first_level, new_model
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.vocab import Vocab

UINT32 = np.dtype(np.uint32)
END = "<|endoftext|>"

pytestmark = pytest.mark.usefixtures("native_library")


def two_levels(
    spec: TokenizerSpec, first: int, cache_bytes: int = 1 << 20, instructions: str | None = None
) -> NativeEncoder:
    """Return an encoder whose first level is the first `first` merges."""
    return NativeEncoder(spec, cache_bytes, instructions, new_model(spec, min(first, len(spec.vocab.merge_ids))))


@pytest.mark.slow
@settings(max_examples=150)
@given(
    vocab=vocabularies() | trained_vocabularies(),
    word=repetitions | texts.filter(bool),
    whole_tokens=st.booleans(),
    first=st.integers(0, 14),
)
def test_the_ids_are_those_of_merging_by_rank(vocab: Vocab, word: str, whole_tokens: bool, first: int) -> None:
    spec = TokenizerSpec(vocab, r"(?s).+", whole_tokens)
    assert two_levels(spec, first).encode(word.encode(), NO_SPECIAL_TOKENS) == merge_as_defined(word.encode(), spec)


@pytest.mark.parametrize("units", [False, True], ids=["bytes", "units"])
@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_each_length_are_merged_by_rank(seed: int, units: bool) -> None:
    """Any two bytes can join, so words are not cut, and the lengths are those at which merging changes its way."""
    choose = random.Random(seed)
    letters = [b"a", b"b", b"c"]
    merges = list(product(letters, letters))
    known = {left + right for left, right in merges} | set(letters)
    for _ in range(30):
        left, right = (choose.choice(sorted(known)) for _ in range(2))
        if left + right not in known:
            known.add(left + right)
            merges.append((left, right))
    choose.shuffle(merges)
    merges.insert(0, (b"x", b"y"))  # the first level, which leaves letters as they are
    spec = spec_of(merges, r"(?s).+")
    encoder = two_levels(spec, 1) if units else NativeEncoder(spec, 1 << 20)
    for length in [*range(1, 20), 127, 128, 129, 130]:
        for _ in range(5):
            word = b"".join(choose.choices(letters, k=length))
            for _ in range(2):  # the second time from the cache
                assert encoder.encode(word, NO_SPECIAL_TOKENS) == merge_as_defined(word, spec), (seed, word)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    vocab=vocabularies(),
    batch=st.lists(texts | repetitions | st.text(), max_size=4),
    pattern=st.sampled_from(["superbpe", "gpt2", r"[^ab]{2,}| ", r"\w+"]),
    unmatched=st.sampled_from(["isolate", "drop"]),
    whole_tokens=st.booleans(),
    cache_bytes=st.sampled_from(CACHES),
    instructions=st.sampled_from(INSTRUCTIONS),
    first=st.integers(0, 14),
)
def test_two_levels_equal_the_python_encoder(
    vocab: Vocab,
    batch: list[str],
    pattern: str,
    unmatched: UnmatchedPolicy,
    whole_tokens: bool,
    cache_bytes: int,
    instructions: str,
    first: int,
) -> None:
    spec = TokenizerSpec(vocab, pattern, whole_tokens, unmatched)
    specials = SpecialTokens.of(vocab.special_tokens)
    ours, python = two_levels(spec, first, cache_bytes, instructions), PythonEncoder(spec)
    encoded = [text.encode() for text in batch]
    for _ in range(2):  # the second time with a filled cache
        for text in encoded:
            expected = python.encode(text, specials)
            assert ours.encode(text, specials) == expected
            assert ours.encode_to_array(memoryview(text), specials, UINT32).tolist() == expected
        ids, ends = ours.encode_batch(batch, specials, UINT32)
        expected_ids, expected_ends = python.encode_batch(batch, specials, UINT32)
        assert (ids.tolist(), ends.tolist()) == (expected_ids.tolist(), expected_ends.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("repetition", range(one_in(12)))
def test_long_texts(repetition: int) -> None:
    """Pieces, runs and pre-tokens are longer than what is cut at a time, and end anywhere in it."""
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    merges = [(b"a", b"b"), (b" ", b" "), (b"  ", b"  "), (b"-", b"-"), (b"--", b"--"), (b"ab", b"ab"), (b" ", b"a")]
    merges += [(b"ab", b" "), (b" a", b" "), (b"ab ", b"ab"), (b"----", b"----"), (b"--", b" "), (b"c", b"c")]
    spec = spec_of(merges, choose.choice(["superbpe", r"[\s\S]+", "gpt2"]))
    encoder, python = two_levels(spec, choose.randrange(len(merges) + 1)), PythonEncoder(spec)
    units = ["ab", "abab", " ", "-", "--", "c", "ab ", "a", " a", "123", *ATOMS]
    for _ in range(6):
        parts = [
            choose.choice(units) * choose.choice([1, 1, 1, 2, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 9000])
            for _ in range(choose.randrange(60))
        ]
        text = (
            "".join(parts).encode()[: choose.choice([4095, 4096, 4097, 8192, 10**6])].decode(errors="ignore").encode()
        )
        assert encoder.encode(text, NO_SPECIAL_TOKENS) == python.encode(text, NO_SPECIAL_TOKENS)


def test_a_token_made_again_by_a_superword_merge() -> None:
    """`ab` is a word and the result of a late merge, after which an early merge applies."""
    merges = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"d"), (b"x", b"a"), (b"a", b" "), (b"xa", b"b"), (b"xab", b"d")]
    for first in range(len(merges) + 1):
        spec = spec_of(merges, r"[\s\S]+")
        for text in (b"xabd", b"abcd a xabdxabcd", b"a bcxabdab d"):
            assert two_levels(spec, first).encode(text, NO_SPECIAL_TOKENS) == merge_as_defined(text, spec)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("units_first", [False, True], ids=["text_first", "units_first"])
def test_units_and_text_of_the_same_bytes_are_cached_apart(count: int, units_first: bool) -> None:
    """In memory, the ids 97 and 98 are the text `a\\0\\0\\0b\\0\\0\\0`."""
    words = [(b"a", b"\0"), (b"b", b"\0"), (b"\0", b"a"), (b"\0", b"b"), (b"\0", b"\0")]
    spec = spec_of([*words, (b"a", b"b"), (b"ab", b"a")], r"[\s\S]+")
    units = (b"ab" * count)[:count]
    texts = [b"".join(bytes([unit]) + b"\0\0\0" for unit in units), units]
    encoder = two_levels(spec, len(words))
    for text in reversed(texts) if units_first else texts:
        assert encoder.encode(text, NO_SPECIAL_TOKENS) == merge_as_defined(text, spec)


def test_whole_tokens_that_merging_does_not_yield() -> None:
    merges = [(b"a", b"b"), (b"ab", b" "), (b"b", b"c")]
    vocab = spec_of(merges, "superbpe").vocab
    spec = TokenizerSpec(Vocab((*vocab.tokens, b"abc", b"b  "), {}, vocab.merges), "superbpe", True)
    encoder, python = two_levels(spec, 1), PythonEncoder(spec)
    for text in (b"abc", b"abc  12abc", b"1abcd", b"b  b   abc", b"abc--abc"):
        assert encoder.encode(text, NO_SPECIAL_TOKENS) == python.encode(text, NO_SPECIAL_TOKENS)
    assert encoder.encode(b"abc", NO_SPECIAL_TOKENS) == [259]


def test_the_first_level_ends_before_the_first_superword() -> None:
    words = [(b"t", b"h"), (b"th", b"e"), (b" ", b" "), (b" ", b"the")]
    assert first_level(spec_of(words)) == 4
    assert first_level(spec_of([*words, (b"the", b" the"), (b"a", b"b")])) == 4
    assert first_level(spec_of([])) == 0


def test_few_words_or_superwords_are_one_level() -> None:
    many = [(bytes([left]), bytes([right])) for left in b"abc" for right in b"defgh"]
    assert first_level(spec_of([(b"e", b" "), *many])) == 16
    assert first_level(spec_of([*many, (b"e", b" "), *[(b"i", bytes([byte])) for byte in range(12)]])) == 28
    assert first_level(spec_of([*many, (b"\xa0", b" ")])) == 16  # white space


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_published_vocabularies_of_words_have_one_level(name: str) -> None:
    spec = published_spec(name)
    assert first_level(spec) == len(spec.vocab.merge_ids)


@cache
def superwords() -> TokenizerSpec:
    text = "".join(
        real_text_start(name, 100_000) for name in ("docs_30MB", "wiki_150MB", "code_20MB", "multilingual_20MB")
    )
    return train_superwords(text, 2000, 3000, (END,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c4_2MB", "code_20MB", "docs_30MB", "multilingual_20MB", "wiki_150MB"])
def test_a_trained_tokenizer(name: str) -> None:
    spec = superwords()
    assert 0 < first_level(spec) < len(spec.vocab.merge_ids)
    text = real_text_start(name, 60_000)
    text = text[:30_000] + END + text[30_000:]
    ours, python = Tokenizer.from_spec(spec), Tokenizer.from_spec(spec, encoder="python")
    expected = python.encode(text)
    assert ours.encode(text) == expected
    assert ours.decode(expected) == text
    assert ours.encode_with_offsets(text) == python.encode_with_offsets(text)
    assert [*ours.encode_iterable(text.splitlines(keepends=True))] == expected
    with patch.object(parallel, "PART_BYTES", 1000):
        assert ours.encode_to_numpy(text, num_threads=2).tolist() == expected
    batch = text.splitlines(keepends=True)
    assert [*chain(*ours.encode_batch(batch))] == [*chain(*python.encode_batch(batch))]
