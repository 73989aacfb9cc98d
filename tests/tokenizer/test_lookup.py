"""Look-ups in a tokenizer's vocabulary, equality by content, and special tokens added or skipped."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import MERGES, SPECIALS, small_spec, special_text

from bpeflow.errors import ConfigError, InputTypeError, SpecialTokenError, UnknownTokenError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Vocab

BYTES = {byte: bytes([byte]) for byte in range(256)}


def make(special_tokens: list[str], **options: bool) -> Tokenizer:
    return Tokenizer.from_spec(TokenizerSpec(Vocab.build(MERGES, special_tokens, **options)))


def test_tokens_are_found_by_id_text_and_bytes() -> None:
    tokenizer = Tokenizer.from_spec(small_spec())
    assert len(tokenizer) == tokenizer.n_vocab == tokenizer.vocab_size == len(tokenizer.vocab)
    for token_id, token in tokenizer.vocab.items():
        assert tokenizer.id_to_token(token_id) == token
        assert token in tokenizer
        assert tokenizer.vocab[tokenizer.token_to_id(token)] == token
    assert tokenizer.token_to_id("é") == tokenizer.token_to_id("é".encode()) == tokenizer.encode("é")[0]
    assert tokenizer.token_to_id("<a>") == tokenizer.token_to_id(b"<a>") == tokenizer.special_tokens["<a>"]
    assert ["word" in tokenizer, b"word" in tokenizer, "Ġword" in tokenizer, "\ud800" in tokenizer] == [
        True, True, False, False,
    ]  # fmt: skip


def test_unknown_tokens_and_ids_are_none() -> None:
    tokenizer = Tokenizer({**BYTES, 300: b"ab"}, [(b"a", b"b")])
    assert [tokenizer.id_to_token(token_id) for token_id in (300, 299, 301, -1)] == [b"ab", None, None, None]
    assert [tokenizer.token_to_id(token) for token in ("ab", "abc", b"", "")] == [300, None, None, None]


def test_text_means_a_special_token_and_bytes_the_ordinary_one_of_the_same_bytes() -> None:
    tokenizer = make(["word"])
    assert tokenizer.token_to_id("word") == 256 == tokenizer.encode("word")[0]
    assert tokenizer.token_to_id(b"word") == tokenizer.encode_ordinary("word")[0] != 256


def test_a_look_up_of_an_id_as_a_token_names_the_remedy() -> None:
    tokenizer = make([])
    with pytest.raises(InputTypeError, match="not int; for an id use"):
        256 in tokenizer  # type: ignore[operator]  # noqa: B015


@pytest.mark.parametrize(
    ("special_tokens", "name"),
    [
        (["<pad>", "</s>", "<|endoftext|>"], "<|endoftext|>"),
        (["<s>", "</s>"], "</s>"),
        (["<|begin_of_text|>", "<|end_of_text|>"], "<|end_of_text|>"),
        (["<doc>"], "<doc>"),
        (["<|pad|>", "<unk>", "<doc>", "<page>"], "<doc>"),
        (["<|pad|>", "<s>"], "<|pad|>"),
    ],
)
def test_the_end_of_text_token_has_a_usual_name_or_is_the_first_that_can_end_a_text(
    special_tokens: list[str], name: str
) -> None:
    tokenizer = make(special_tokens)
    assert tokenizer.eot_token == tokenizer.special_tokens[name]


def test_no_end_of_text_token_is_an_error() -> None:
    with pytest.raises(SpecialTokenError, match="with_special_tokens"):
        _ = make([]).eot_token


def test_tokenizers_with_the_same_content_are_equal() -> None:
    tokenizer = Tokenizer.from_spec(small_spec())
    same = [
        Tokenizer.from_spec(small_spec(), encoder="python", cache_bytes=0),
        Tokenizer.from_spec(small_spec(NAMED_PATTERNS["gpt2"])),
        Tokenizer(tokenizer.vocab.to_dict(), tokenizer.merges, SPECIALS),
        pickle.loads(pickle.dumps(tokenizer)),
    ]
    assert {tokenizer, *same} == {tokenizer}
    others = [
        Tokenizer.from_spec(small_spec("cl100k")),
        Tokenizer.from_spec(small_spec(whole_tokens=True)),
        Tokenizer(tokenizer.vocab.to_dict(), tokenizer.merges, SPECIALS[:-1]),
        Tokenizer(tokenizer.vocab.to_dict(), tokenizer.merges[:-1], SPECIALS),
        tokenizer.with_special_tokens(["<new>"]),
    ]
    assert len({tokenizer, *others}) == 6
    assert tokenizer != small_spec()


def test_special_tokens_are_added_after_the_greatest_id(encoder: str) -> None:
    tokenizer = Tokenizer({**BYTES, 300: b"ab"}, [(b"a", b"b")], encoder=encoder, pattern="cl100k")
    more = tokenizer.with_special_tokens(["<x>", "ab", "<y>"])
    assert more.special_tokens == {"<x>": 301, "ab": 300, "<y>": 302}
    assert (more.encode("<y>ab"), more.pattern, more.encoder) == ([302, 300], "cl100k", encoder)
    assert (len(tokenizer), tokenizer.special_tokens) == (301, {})
    assert more.with_special_tokens(["<x>"]) == more
    with pytest.raises(ConfigError, match="empty"):
        tokenizer.with_special_tokens([""])
    assert tokenizer.with_special_tokens("<x>") == tokenizer.with_special_tokens(["<x>"])


@settings(max_examples=25)
@given(text=special_text, as_array=st.booleans())
def test_special_tokens_are_skipped_in_all_kinds_of_decoding(encoder: str, text: str, as_array: bool) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    ids = tokenizer.encode(text)
    specials = set(tokenizer.special_tokens.values())
    expected = tokenizer.decode([token_id for token_id in ids if token_id not in specials])
    given_ids = tokenizer.encode_to_numpy(text) if as_array else ids
    assert tokenizer.decode(given_ids, skip_special_tokens=True) == expected
    assert tokenizer.decode_bytes(given_ids, skip_special_tokens=True) == expected.encode()
    assert tokenizer.decode_batch([given_ids], skip_special_tokens=True) == [expected]
    assert "".join(tokenizer.decode_stream(given_ids, skip_special_tokens=True)) == expected


def test_an_unknown_id_among_skipped_special_tokens_is_an_error_with_its_index(encoder: str) -> None:
    tokenizer = Tokenizer({**BYTES, 300: b"ab"}, [], ["<x>"], encoder=encoder)
    for unknown in (299, 302, 70_000):
        with pytest.raises(UnknownTokenError, match=f"id {unknown} at index 2"):
            tokenizer.decode([301, 301, unknown], skip_special_tokens=True)
        with pytest.raises(UnknownTokenError, match=f"id {unknown} at index 1"):
            tokenizer.decode(np.array([301, unknown], np.uint32), skip_special_tokens=True)


def test_ordinary_text_that_shares_its_id_with_a_special_token_is_not_skipped() -> None:
    tokenizer = make(["word", "<s>"], special_tokens_first=True, reuse_tokens=True)
    ids = tokenizer.encode("word<s>")
    assert ids == [0, 1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "word"


def test_batches_of_ordinary_text_are_encoded(encoder: str) -> None:
    tokenizer = Tokenizer.from_spec(small_spec(), encoder=encoder)
    texts = ["word<a>", "", "<|endoftext|>"]
    assert tokenizer.encode_ordinary_batch(texts, num_threads=2) == [tokenizer.encode_ordinary(text) for text in texts]
