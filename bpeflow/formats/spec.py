"""`TokenizerSpec`: what file formats hold of a tokenizer, and hand to each other and to `bpeflow.Tokenizer`."""

from __future__ import annotations

from dataclasses import dataclass

from bpeflow.vocab import Vocab


@dataclass(frozen=True)
class TokenizerSpec:
    """All that decides what a tokenizer yields.

    Attributes:
        vocab: tokens (``b""`` for an id that stands for nothing), special tokens, merges by rank.
        pattern: how text is split into pre-tokens: a pattern's name, or a regular expression.
        whole_tokens: whether a pre-token that is a token is taken whole even where merging would yield something else
            (HuggingFace's ``ignore_merges``; tiktoken always does so).
    """

    vocab: Vocab
    pattern: str = "gpt2"
    whole_tokens: bool = False
