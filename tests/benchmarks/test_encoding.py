"""Encoding, decoding and loading."""

from __future__ import annotations

from pathlib import Path

import pytest
from available import skip_missing
from pytest_benchmark.fixture import BenchmarkFixture

import bpeflow
from bpeflow.formats.any_format import FORMATS
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.tokenizer.tokenizer import ENCODERS

pytestmark = pytest.mark.benchmark(group="encoding")


@pytest.fixture(params=ENCODERS)
def tokenizer(request: pytest.FixtureRequest, vocab: bpeflow.Vocab) -> bpeflow.Tokenizer:
    if request.param == "native":
        skip_missing("encode", why_regex(load_pretokenizer("gpt2")))
    return bpeflow.Tokenizer(vocab, vocab.merges, encoder=request.param)


@pytest.fixture(params=["source_code", "wide_text"])
def text(request: pytest.FixtureRequest, tokenizer: bpeflow.Tokenizer) -> bytes:
    whole: bytes = request.getfixturevalue(request.param)
    return whole if tokenizer.encoder == "native" else whole[: len(whole) // 16].decode("utf-8", "ignore").encode()


def test_cold(benchmark: BenchmarkFixture, tokenizer: bpeflow.Tokenizer, text: bytes) -> None:
    """The first call of a tokenizer, in one thread: each new word is merged."""

    def new() -> tuple[tuple[bpeflow.Tokenizer], dict[str, int]]:
        vocab = tokenizer.vocab
        return (bpeflow.Tokenizer(vocab, vocab.merges, encoder=tokenizer.encoder),), {}

    ids = benchmark.pedantic(lambda new: new.encode_to_numpy(text, num_threads=1), setup=new, rounds=5)
    assert tokenizer.decode_bytes(ids) == text


def test_warm(benchmark: BenchmarkFixture, tokenizer: bpeflow.Tokenizer, text: bytes) -> None:
    first = tokenizer.encode_to_numpy(text, num_threads=1)
    ids = benchmark(tokenizer.encode_to_numpy, text, num_threads=1)
    assert ids.tolist() == first.tolist()


def test_short(benchmark: BenchmarkFixture, tokenizer: bpeflow.Tokenizer) -> None:
    text = "def encode(text: str"
    assert tokenizer.decode(benchmark(tokenizer.encode, text)) == text


def test_decoding(benchmark: BenchmarkFixture, tokenizer: bpeflow.Tokenizer, text: bytes) -> None:
    ids = tokenizer.encode_to_numpy(text)
    assert benchmark(tokenizer.decode_bytes, ids) == text


@pytest.mark.parametrize("format_name", [known.name for known in FORMATS])
def test_load(benchmark: BenchmarkFixture, vocab: bpeflow.Vocab, tmp_path: Path, format_name: str) -> None:
    bpeflow.Tokenizer(vocab, vocab.merges).save(tmp_path, format_name)
    assert benchmark(bpeflow.Tokenizer.load, tmp_path).vocab == vocab
