"""`TokenizerSpec`: the content of a tokenizer, independent of file formats."""

from __future__ import annotations

from dataclasses import dataclass

from bpeflow.vocab import Vocab


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything that determines the ids of a text. All formats load and save one.

    Attributes:
        vocab: the tokens, special tokens and merges.
        pattern: how text is split into pre-tokens: the name of a pattern, or a regular expression.
        whole_tokens: whether a pre-token that equals a token becomes that token, even if merging would yield other
            tokens. HuggingFace calls this `ignore_merges`, and tiktoken always does it.
    """

    vocab: Vocab
    pattern: str = "gpt2"
    whole_tokens: bool = False
