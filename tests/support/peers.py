"""Our exports, loaded by tiktoken and by HuggingFace tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from real_data import real_data

import bpeflow
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab

Encode = Callable[[str], list[int]]

#: Characters that the Unicode versions of all engines know, and that the patterns treat differently.
CHARACTERS = "aZéßſ日д07²٣' \n\r\t\xa0\u3000!/-_sStTlLdDvVrReEmM\u0301\u200d🙂"

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>", "<a b>")


def open_tiktoken(path: Path) -> Any:
    """Load a .tiktoken file and the JSON file beside it, as docs/migrating.md describes."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    about = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
    return tiktoken.Encoding(**about, mergeable_ranks=read_ranks(path))


def read_ranks(path: Path) -> dict[bytes, int]:
    """Read ranks with tiktoken's function, but without its cache, whose key is the file name."""
    load = pytest.importorskip("tiktoken.load", reason="tiktoken is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        ranks: dict[bytes, int] = load.load_tiktoken_bpe(str(path))
    return ranks


@cache
def published_spec(name: str) -> TokenizerSpec:
    """Load one of OpenAI's files, which takes seconds."""
    return formats.load(real_data(f"vocabs/{name}.tiktoken"))


def open_huggingface(path: Path) -> Any:
    """Load a tokenizer.json."""
    return pytest.importorskip("tokenizers", reason="tokenizers is not installed").Tokenizer.from_file(str(path))


def export(saved: TokenizerSpec) -> tuple[Any, Any]:
    """Save a tokenizer for tiktoken and for HuggingFace, and load both."""
    with TemporaryDirectory() as folder:
        ranks, _ = formats.write(saved, Path(folder), "tiktoken")
        json_path, *_ = formats.write(saved, Path(folder), "huggingface")
        return open_tiktoken(ranks), open_huggingface(json_path)


def tiktoken_encoder(path: Path) -> Encode:
    """Return tiktoken's encoding function, with special tokens in the text recognised."""
    theirs = open_tiktoken(path)
    return lambda text: list(theirs.encode(text, allowed_special="all"))


def huggingface_encoder(path: Path) -> Encode:
    """Return the encoding function of HuggingFace tokenizers."""
    theirs = open_huggingface(path)
    return lambda text: list(theirs.encode(text, add_special_tokens=False).ids)


def encoders(saved: TokenizerSpec) -> dict[str, Encode]:
    """Return both encoding functions, by library name."""
    with TemporaryDirectory() as folder:
        ranks, _ = formats.write(saved, Path(folder), "tiktoken")
        json_path, *_ = formats.write(saved, Path(folder), "huggingface")
        return {"tiktoken": tiktoken_encoder(ranks), "tokenizers": huggingface_encoder(json_path)}


@cache
def train(text: str, pattern: str, vocab_size: int, tie_break: str = "greatest_bytes") -> TokenizerSpec:
    """Train a tokenizer. With `huggingface` tie-breaking, special tokens get the first ids, as in that tool."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text(text, encoding="utf-8", newline="")
        result = bpeflow.train(
            {
                "input": path,
                "vocab_size": vocab_size,
                "pattern": pattern,
                "special_tokens": SPECIAL_TOKENS,
                "tie_break": tie_break,
                "special_tokens_first": tie_break == "huggingface",
            }
        )
    assert isinstance(result.vocab, Vocab)
    return TokenizerSpec(result.vocab, pattern)
