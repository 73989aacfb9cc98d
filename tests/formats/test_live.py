"""Tokenizers as objects of other libraries, and the other way round, have the same ids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from real_data import real_data

from bpeflow import FormatError, InputTypeError, MissingLibraryError, Tokenizer

TEXTS = ["the newest <|endoftext|> low", "é 😀 <|pad|>", "lower  12345\n"]


@pytest.fixture(params=["gpt2", "cl100k", r"\w+|\W"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    documents = ["low lower lowest newest widest " * 9, "the é"]
    return Tokenizer.train(
        iter(documents),
        280,
        pattern=request.param,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        tie_break="huggingface",
    )


def test_tiktoken(tokenizer: Tokenizer) -> None:
    pytest.importorskip("tiktoken")
    encoding = tokenizer.to_tiktoken("mine")
    assert encoding.name == "mine"
    for text in TEXTS:
        assert encoding.encode(text, allowed_special="all") == tokenizer.encode(text)
    again = Tokenizer.load(encoding)
    assert [again.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_huggingface_tokenizers(tokenizer: Tokenizer) -> None:
    pytest.importorskip("tokenizers")
    theirs = tokenizer.to_tokenizers()
    for text in TEXTS:
        assert theirs.encode(text).ids == tokenizer.encode(text)
    assert Tokenizer.load(theirs) == tokenizer


def test_transformers(tokenizer: Tokenizer) -> None:
    pytest.importorskip("transformers")
    theirs = tokenizer.to_transformers(pad="<|pad|>", max_length=100)
    assert (theirs.pad_token, theirs.model_max_length) == ("<|pad|>", 100)
    assert theirs(TEXTS)["input_ids"] == tokenizer.encode_batch(TEXTS)
    assert Tokenizer.load(theirs) == tokenizer


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])
def test_a_published_encoding_of_tiktoken(name: str) -> None:
    pytest.importorskip("tiktoken")
    published = Tokenizer.load(real_data(f"vocabs/{name}.tiktoken"))
    assert Tokenizer.load(published.to_tiktoken()) == published


def test_what_loads_itself(tokenizer: Tokenizer) -> None:
    assert Tokenizer.load(tokenizer) == tokenizer
    assert Tokenizer.load(tokenizer.vocab).vocab == tokenizer.vocab


def test_what_cannot_be_converted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tiktoken")
    normalizing = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], normalizer="nfc")
    with pytest.raises(FormatError, match=r"^tiktoken.Encoding: tiktoken has no normalizers"):
        normalizing.to_tiktoken()
    tokenizers = pytest.importorskip("tokenizers")
    with pytest.raises(FormatError, match=r"^tokenizers.Tokenizer: a 'WordPiece' model"):
        Tokenizer.load(tokenizers.Tokenizer(tokenizers.models.WordPiece()))
    for wrong in (7, None, object(), ["a"]):
        with pytest.raises(InputTypeError, match=f"cannot load a tokenizer from {type(wrong).__name__}: need a path"):
            Tokenizer.load(wrong)
    monkeypatch.setitem(__import__("sys").modules, "tiktoken", None)
    with pytest.raises(MissingLibraryError, match="pip install tiktoken"):
        Tokenizer({byte: bytes([byte]) for byte in range(256)}, []).to_tiktoken()


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("tiktoken", "tokenizers", "transformers"):
        pytest.importorskip(library)
    page = Path(__file__).parents[2] / "docs" / "formats.md"
    [script] = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    Tokenizer.train(iter(["the cats sat on the mat " * 9]), 280).save("runs/mine")
    exec(script, {})
