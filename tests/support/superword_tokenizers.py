"""Tokenizers with superwords."""

from __future__ import annotations

import bpeflow
from bpeflow.config import MergeSettings, make_settings
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.training.learn import learn_with_settings


def train_superwords(text: str, words: int, vocab_size: int, special_tokens: tuple[str, ...] = ()) -> TokenizerSpec:
    """Learn `words` entries with the pattern o200k, and then `vocab_size` with the second pattern of SuperBPE."""
    counts = bpeflow.count(iter([text]), pattern="o200k")
    base = bpeflow.learn_merges(counts, words, special_tokens).tokenizer().to_spec()
    settings = make_settings(MergeSettings, {"vocab_size": vocab_size, "special_tokens": special_tokens})
    chunks = bpeflow.count(iter([text]), pattern="superbpe", unmatched="isolate")
    learned = learn_with_settings(chunks, settings, base=base)
    return learned.tokenizer(pattern="superbpe", unmatched="isolate").to_spec()
