"""Fixtures of the encoding tests: each encoder in turn, GPT-2's tokenizer, and the same from its peers."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import pytest
from available import chosen, skip_missing
from real_data import real_data

from bpeflow.errors import NativeUnavailableError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import native_unicode_version
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import unicode_version
from bpeflow.tokenizer.tokenizer import ENCODERS, Tokenizer, new_encoder
from bpeflow.vocab import Vocab


@cache
def _unavailable(encoder: str) -> str | None:
    try:
        new_encoder(TokenizerSpec(Vocab.build([])), encoder)
    except NativeUnavailableError as error:
        return str(error)
    return None


@pytest.fixture(params=chosen(ENCODERS))
def encoder(request: pytest.FixtureRequest) -> str:
    """Each encoder in turn. One that is not available is skipped with the reason."""
    skip_missing("encode", _unavailable(request.param))
    if request.param == "native" and native_unicode_version() != unicode_version():
        pytest.skip("the native tables follow a different Unicode version than the installed regex")
    return str(request.param)


@pytest.fixture(scope="session")
def native_library() -> None:
    """Skip if the native library is missing, or follows a different Unicode version than the definition."""
    skip_missing("encode", _unavailable("native"))
    if native_unicode_version() != unicode_version():
        pytest.skip("the native tables follow a different Unicode version than the installed regex")


@pytest.fixture
def gpt2(encoder: str) -> Tokenizer:
    """GPT-2's tokenizer, from the files published by OpenAI."""
    return _gpt2(encoder)


@cache
def _gpt2(encoder: str) -> Tokenizer:
    vocab, merges = real_data("vocabs/gpt2.encoder.json"), real_data("vocabs/gpt2.vocab.bpe")
    return Tokenizer.from_files(vocab, merges, ["<|endoftext|>"], encoder=encoder)


@pytest.fixture(scope="session")
def tiktoken_gpt2() -> Any:
    """GPT-2's tokenizer in tiktoken, from tiktoken's own file."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    lines = real_data("vocabs/r50k_base.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    pattern = NAMED_PATTERNS["gpt2"]
    return tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}, explicit_n_vocab=50257
    )


@pytest.fixture(scope="session")
def huggingface_gpt2() -> Any:
    """GPT-2's tokenizer in HuggingFace tokenizers."""
    tokenizers = pytest.importorskip("tokenizers", reason="HuggingFace tokenizers is not installed")
    paths = [str(real_data(f"vocabs/gpt2.{name}")) for name in ("encoder.json", "vocab.bpe")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*paths))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer
