"""GPT-2's two files alone, as other programs write them."""

from __future__ import annotations

from pathlib import Path

from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab


def save_files(vocab: Vocab, folder: Path) -> tuple[Path, Path]:
    """Write ``vocab.json`` and ``merges.txt``."""
    vocab_path, merges_path, ours = gpt2.save(TokenizerSpec(vocab), folder)
    ours.unlink()
    return vocab_path, merges_path
