"""Tokens as pre-tokens: which of them their own bytes become, as the native encoder finds out for its short tokens."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_vocabularies import merge_as_defined, trained_vocabularies, vocabularies
from real_data import real_data

from bpeflow.formats import gpt2, tiktoken
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.tokenizer.native_encoder import NativeEncoder
from bpeflow.tokenizer.python_encoder import PythonEncoder
from bpeflow.tokenizer.special_tokens import NO_SPECIAL_TOKENS
from bpeflow.vocab import Vocab

pytestmark = pytest.mark.usefixtures("native_library")


@settings(max_examples=200)
@given(vocab=st.one_of(trained_vocabularies(), vocabularies()))
def test_each_token_is_merged_as_defined(vocab: Vocab) -> None:
    spec = TokenizerSpec(vocab, r"(?s).+")
    encoder = NativeEncoder(spec)
    for token in {*vocab.tokens[256:]} - {b""}:
        if is_utf8(token):
            assert encoder.encode(token, NO_SPECIAL_TOKENS) == merge_as_defined(token, spec)


def test_a_merge_across_the_middle_comes_first() -> None:
    """The bytes of the token `abbc` become `a`, `bb`, `c`."""
    vocab = Vocab.build([(b"b", b"b"), (b"a", b"b"), (b"b", b"c"), (b"ab", b"bc"), (b"a", b"a"), (b"a", b"aa")])
    encoder = NativeEncoder(TokenizerSpec(vocab, r"(?s).+"))
    assert encoder.encode(b"abbc", NO_SPECIAL_TOKENS) == [97, 256, 99]
    assert encoder.encode(b"aaa", NO_SPECIAL_TOKENS) == [260, 97]


@pytest.fixture(scope="module")
def ranks_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "x.tiktoken"
    tiktoken.sidecar_path(path).write_text('{"pat_str": "[abc]+"}')
    return path


@settings(max_examples=150)
@given(tokens=st.lists(st.text("abc", min_size=2, max_size=5), unique=True, max_size=9))
def test_a_vocabulary_of_ranks_knows_whether_merging_yields_all_its_tokens(ranks_file: Path, tokens: list[str]) -> None:
    all_tokens = [*(bytes([byte]) for byte in range(256)), *map(str.encode, tokens)]
    ranks_file.write_bytes(b"".join(b"%s %d\n" % (b64encode(token), rank) for rank, token in enumerate(all_tokens)))
    spec = tiktoken.load(ranks_file)
    yields_all = all(
        merge_as_defined(token, replace(spec, whole_tokens=False)) == [i] for i, token in enumerate(all_tokens)
    )
    assert spec.whole_tokens != yields_all
    encoder = NativeEncoder(spec)
    for text in (a + b for a in all_tokens[256:] for b in all_tokens[256:]):
        assert encoder.encode(text, NO_SPECIAL_TOKENS) == merge_as_defined(text, spec)


@pytest.mark.slow
def test_each_token_of_gpt2_is_merged_as_defined() -> None:
    vocab = gpt2.load_files(real_data("vocabs/gpt2.encoder.json"), real_data("vocabs/gpt2.vocab.bpe"))
    spec = TokenizerSpec(vocab, r"(?s).+")
    native, python = NativeEncoder(spec), PythonEncoder(spec)
    texts = [token.decode() for token in vocab.ordinary_tokens if token and is_utf8(token)]
    ids, ends = native.encode_batch(texts, NO_SPECIAL_TOKENS, np.dtype(np.uint32))
    expected, expected_ends = python.encode_batch(texts, NO_SPECIAL_TOKENS, np.dtype(np.uint32))
    assert (ids.tolist(), ends.tolist()) == (expected.tolist(), expected_ends.tolist())


def is_utf8(token: bytes) -> bool:
    return token.decode(errors="replace").encode() == token
