"""Our exports as others load them: tiktoken and HuggingFace tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import bpeflow
from bpeflow.formats import registry as formats
from bpeflow.formats.spec import TokenizerSpec
from bpeflow.vocab import Vocab

Encode = Callable[[str], list[int]]

#: Characters that all engines' versions of Unicode know, and in which the patterns make differences.
CHARACTERS = "aZéßſ日д07²٣' \n\r\t\xa0\u3000!/-_sStTlLdDvVrReEmM\u0301\u200d🙂"

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>", "<a b>")


def open_tiktoken(path: Path) -> Any:
    """Load a .tiktoken file and what is beside it, as docs/migrating.md says."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    about = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
    return tiktoken.Encoding(**about, mergeable_ranks=read_ranks(path))


def read_ranks(path: Path) -> dict[bytes, int]:
    """Read ranks by tiktoken's function, without the cache that it keeps by name."""
    load = pytest.importorskip("tiktoken.load", reason="tiktoken is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        ranks: dict[bytes, int] = load.load_tiktoken_bpe(str(path))
    return ranks


def open_huggingface(path: Path) -> Any:
    """Load a tokenizer.json."""
    return pytest.importorskip("tokenizers", reason="tokenizers is not installed").Tokenizer.from_file(str(path))


def export(saved: TokenizerSpec) -> tuple[Any, Any]:
    """Write a tokenizer for tiktoken and for HuggingFace, and load it there."""
    with TemporaryDirectory() as folder:
        ranks, _ = formats.save(saved, Path(folder), "tiktoken")
        [json_path] = formats.save(saved, Path(folder), "huggingface")
        return open_tiktoken(ranks), open_huggingface(json_path)


def tiktoken_encoder(path: Path) -> Encode:
    """How tiktoken encodes, special tokens being taken for themselves."""
    theirs = open_tiktoken(path)
    return lambda text: list(theirs.encode(text, allowed_special="all"))


def huggingface_encoder(path: Path) -> Encode:
    """How HuggingFace tokenizers encodes."""
    theirs = open_huggingface(path)
    return lambda text: list(theirs.encode(text, add_special_tokens=False).ids)


def encoders(saved: TokenizerSpec) -> dict[str, Encode]:
    """The encoders of both, by name."""
    with TemporaryDirectory() as folder:
        ranks, _ = formats.save(saved, Path(folder), "tiktoken")
        [json_path] = formats.save(saved, Path(folder), "huggingface")
        return {"tiktoken": tiktoken_encoder(ranks), "tokenizers": huggingface_encoder(json_path)}


@cache
def train(text: str, pattern: str, vocab_size: int, tie_break: str = "greatest_bytes") -> TokenizerSpec:
    """A tokenizer of a text, in the order of ids that the tie-breaking's tool has."""
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
