"""`TokenizerSpec`: the content of a tokenizer, independent of file formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.regex import simplest_pattern
from bpeflow.vocab import Vocab


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything that determines the ids of a text. All formats load and save one.

    Attributes:
        vocab: the tokens, special tokens and merges. Its `pattern`, `unmatched` and `normalizer` are
            those of the spec.
        pattern: how text is split into pre-tokens: the name of a pattern, a regular expression, or several of them.
        whole_tokens: whether a pre-token that equals a token becomes that token, even if merging would yield other
            tokens. HuggingFace calls this `ignore_merges`, and tiktoken always does it.
        unmatched: what to do with text that a regular expression does not match. The named patterns match all text.
        normalizer: the names of the normalizers that are applied, in order, to the text between special tokens before
            it is split.
    """

    vocab: Vocab
    pattern: Pattern = "gpt2"
    whole_tokens: bool = False
    unmatched: UnmatchedPolicy = "isolate"
    normalizer: tuple[NormalizerName, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", simplest_pattern(self.pattern))  # the dataclass is frozen
        vocab = self.vocab
        known = (vocab.pattern, vocab.unmatched, vocab.normalizer)
        if known != (self.pattern, self.unmatched, self.normalizer):
            vocab = vocab.annotated(pattern=self.pattern, unmatched=self.unmatched, normalizer=self.normalizer)
            object.__setattr__(self, "vocab", vocab)

    @classmethod
    def of(
        cls,
        vocab: Vocab,
        pattern: str | Sequence[str] | None = None,
        unmatched: UnmatchedPolicy | None = None,
        whole_tokens: bool = False,
        normalizer: str | Iterable[str] | None = None,
    ) -> TokenizerSpec:
        """Return a spec with the pattern and normalizer that a vocabulary was trained with, unless others are given.

        A vocabulary without a pattern, such as one made of a plain `dict`, gets GPT-2's.
        """
        pattern = vocab.pattern or "gpt2" if pattern is None else simplest_pattern(pattern)
        if unmatched is None:
            unmatched = vocab.unmatched if pattern == vocab.pattern else None
        names = load_normalizer(vocab.normalizer if normalizer is None else normalizer).names
        return cls(vocab, pattern, whole_tokens, unmatched or "isolate", names)


@runtime_checkable
class HasSpec(Protocol):
    """A tokenizer, of whichever class."""

    def to_spec(self) -> TokenizerSpec:
        """Return the tokenizer's content."""
        ...
