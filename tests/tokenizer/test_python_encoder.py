"""The rules of the `Encoder` protocol, checked on each encoder in turn."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import MERGES, SPECIALS, merge_naively, small_spec, special_text, text

from bpeflow.errors import ConfigError, FormatError, NativeUnavailableError, UnknownTokenError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.encoder import Encoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from bpeflow.tokenizer.tokenizer import new_encoder
from bpeflow.vocab import Vocab

UINT16 = np.dtype(np.uint16)


@cache
def make(encoder: str, pattern: str = "gpt2", whole_tokens: bool = False) -> tuple[Encoder, SpecialTokens]:
    spec = small_spec(pattern, whole_tokens)
    return new_encoder(spec, encoder), SpecialTokens.of(spec.vocab.special_tokens)


def expected(data: bytes, pattern: str) -> list[bytes]:
    pretokens = load_pretokenizer(pattern).pretokens(data.decode())
    return [token for pretoken in pretokens for token in merge_naively(pretoken.encode(), MERGES)]


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS, r"\w+|\s", r"(a|b)+|[^ab]"])
@settings(max_examples=50)
@given(text=text)
def test_pretokens_are_merged_by_rank(encoder: str, pattern: str, text: str) -> None:
    model, _ = make(encoder, pattern)
    data = text.encode()
    ids = model.encode(data, NO_SPECIAL_TOKENS)
    tokens = small_spec().vocab.tokens
    assert [tokens[token_id] for token_id in ids] == expected(data, pattern)


@given(pretoken=st.text("ab", max_size=60), merges=st.permutations(MERGES[:6] + MERGES[24:25]))
def test_merges_may_be_in_any_order(encoder: str, pretoken: str, merges: list[tuple[bytes, bytes]]) -> None:
    """A part of a merge may be made by a later merge, which training never produces."""
    vocab = Vocab.build(merges, reuse_tokens=True)
    ids = new_encoder(TokenizerSpec(vocab), encoder).encode(pretoken.encode(), NO_SPECIAL_TOKENS)
    assert [vocab.tokens[token_id] for token_id in ids] == merge_naively(pretoken.encode(), merges)


@pytest.mark.slow
@given(texts=st.lists(special_text, max_size=6))
def test_all_methods_agree(encoder: str, texts: list[str]) -> None:
    model, specials = make(encoder)
    batch = [text.encode() for text in texts]
    lists = [model.encode(data, specials) for data in batch]
    for dtype in (UINT16, np.dtype(np.uint32)):
        for data, ids in zip(batch, lists, strict=True):
            array = model.encode_to_array(data, specials, dtype)
            assert (array.dtype, array.tolist()) == (dtype, ids)
            assert model.encode_to_array(memoryview(data), specials, dtype).tolist() == ids
        together, ends = model.encode_batch(texts, specials, dtype)
        assert (together.dtype, ends.dtype) == (dtype, np.int64)
        assert together.tolist() == [token_id for ids in lists for token_id in ids]
        assert ends.tolist() == np.cumsum([len(ids) for ids in lists]).tolist()
    assert model.with_cache(0).encode_batch(texts, specials, UINT16)[0].tolist() == together.tolist()


@given(text=special_text)
def test_special_tokens_divide_the_text(encoder: str, text: str) -> None:
    model, specials = make(encoder)
    data, expected = text.encode(), []
    for piece, special_id in specials.split(data):
        expected += model.encode(piece, NO_SPECIAL_TOKENS) if special_id is None else [special_id]
    assert model.encode(data, specials) == expected
    assert model.decode(np.array(expected, np.uint16)) == data


def test_arrays_belong_to_the_caller(encoder: str) -> None:
    model, specials = make(encoder)
    first = model.encode_to_array(b"word word", specials, UINT16)
    before = first.tolist()
    model.encode_to_array(b"aaaa 123", specials, UINT16)
    assert first.tolist() == before


def test_whole_tokens_covers_ordinary_tokens_but_not_special_ones(encoder: str) -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    vocab = Vocab((*tokens, b"hello", b" world", b"special"), {"special": 258}, ())
    whole = new_encoder(TokenizerSpec(vocab, whole_tokens=True), encoder)
    assert whole.encode(b"hello world", NO_SPECIAL_TOKENS) == [256, 257]
    assert whole.encode(b"special", NO_SPECIAL_TOKENS) == list(b"special")
    merged = new_encoder(TokenizerSpec(vocab), encoder)
    assert merged.encode(b"hello", NO_SPECIAL_TOKENS) == list(b"hello")


def test_a_repeated_merge_has_its_first_rank(encoder: str) -> None:
    tokens = (*(bytes([byte]) for byte in range(256)), b"ab", b"bc")
    vocab = Vocab(tokens, {}, ((b"a", b"b"), (b"b", b"c"), (b"a", b"b")))
    assert new_encoder(TokenizerSpec(vocab), encoder).encode(b"abc", NO_SPECIAL_TOKENS) == [256, ord("c")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one letter", "two in turn", "random"])
def test_no_pretoken_takes_quadratic_time(encoder: str, kind: str) -> None:
    model, specials = make(encoder)
    size = 1_000_000 if encoder == "native" else 200_000
    letters = {"one letter": "a" * size, "two in turn": "ab" * (size // 2)}
    data = letters.get(kind, "".join(random.Random(1).choices("abwordthe", k=size))).encode()
    started = process_time()
    ids = model.encode_to_array(data, specials, UINT16)
    assert process_time() - started < 60  # quadratic time would be many minutes; the benchmarks measure the speed
    assert model.decode(ids) == data


@pytest.mark.parametrize(("token_id", "reason"), [(60_000, "ids 0 to 256"), (255, "has no token")])
def test_unknown_ids_are_named_with_their_index(encoder: str, token_id: int, reason: str) -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    tokens[255:] = [b"", b"\xff"]
    model = new_encoder(TokenizerSpec(Vocab(tuple(tokens), {}, ())), encoder)
    with pytest.raises(UnknownTokenError, match=f"id {token_id} at index 2.*{reason}"):
        model.decode(np.array([65, 66, token_id, token_id], np.uint16))
    assert model.decode(np.array([], np.uint16)) == b""


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_arrays_of_both_dtypes_are_decoded(encoder: str, dtype: type) -> None:
    model, _ = make(encoder)
    special = small_spec().vocab.special_tokens[SPECIALS[0]]
    assert model.decode(np.array([104, 105, special], dtype)) == b"hi<|endoftext|>"


def test_bytes_that_utf8_never_has_may_be_missing(encoder: str, tmp_path: Path) -> None:
    full = Vocab.build([(b"\xc3", b"\xa9"), (b"a", b"b")], ["<s>"])
    never = [bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))]
    vocab = full.replaced(tokens=tuple(b"" if token in never else token for token in full.tokens))
    every_byte = "".join(map(chr, range(1, 0x110000, 997))) + "éab<s>"
    encoded, specials = every_byte.encode("utf-8", "ignore"), SpecialTokens.of({"<s>": 256})
    ids = new_encoder(TokenizerSpec(full), encoder).encode(encoded, specials)
    assert new_encoder(TokenizerSpec(vocab), encoder).encode(encoded, specials) == ids
    for format_ in ("gpt2", "huggingface", "tiktoken"):
        formats.save(TokenizerSpec(vocab), tmp_path / format_, format_)
        assert formats.load(tmp_path / format_).vocab == vocab


def test_a_vocabulary_with_a_missing_byte_or_result_is_rejected(encoder: str) -> None:
    missing_byte = Vocab(tuple(bytes([byte]) for byte in range(256) if byte != 0xF4), {}, ())
    with pytest.raises(FormatError, match="0xf4"):
        new_encoder(TokenizerSpec(missing_byte), encoder)
    missing_result = Vocab(tuple(bytes([byte]) for byte in range(256)), {}, ((b"a", b"b"),))
    with pytest.raises(FormatError, match="merge 0"):
        new_encoder(TokenizerSpec(missing_result), encoder)


def test_an_unknown_encoder_is_rejected() -> None:
    with pytest.raises(ConfigError, match="unknown encoder 'nativ'; did you mean 'native'"):
        new_encoder(small_spec(), "nativ")


def test_auto_falls_back_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NativeUnavailableError("not built")

    monkeypatch.setattr("bpeflow.tokenizer.tokenizer.NativeEncoder", missing)
    assert new_encoder(small_spec()).name == "python"
    with pytest.raises(NativeUnavailableError, match="not built"):
        new_encoder(small_spec(), "native")
