"""The named split patterns, which have tables and a faster scanner in the native library."""

from __future__ import annotations

from dataclasses import dataclass

from bpeflow._util.text import Utf8 as Utf8


@dataclass(frozen=True)
class NamedPattern:
    """A split pattern with a name.

    Attributes:
        name: the name.
        regex: the pattern, in the syntax of the `regex` module.
    """

    name: str
    regex: str


_PATTERNS = (
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `r50k_pat_str`, which it uses for gpt2. On every text it is
    # equivalent to the pattern in GPT-2's encoder.py, and it is faster.
    NamedPattern(
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `cl100k_base`. Older releases had the pattern `llama3` below. The
    # only difference: here, white space at the end of the text is one token, including line ends.
    NamedPattern(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_base`.
    NamedPattern(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # Meta's llama3 repository, llama/tokenizer.py, `pat_str`.
    NamedPattern(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # Qwen2's tokenizer.json, the `Split` pre-tokenizer, which is also `PRETOKENIZE_REGEX` in HuggingFace's
    # tokenization_qwen2.py. Unlike llama3, it makes every digit a token of its own.
    NamedPattern(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
)

#: The named patterns by name.
NAMED_PATTERNS = {pattern.name: pattern for pattern in _PATTERNS}

#: The regular expressions of the named patterns. They match all text.
NAMED_REGEXES = frozenset(pattern.regex for pattern in _PATTERNS)
