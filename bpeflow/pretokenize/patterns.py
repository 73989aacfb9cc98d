"""The five named split patterns, exactly as their models publish them. Where each allows a cut is in `cuts`."""

from __future__ import annotations

from dataclasses import dataclass

from bpeflow.pretokenize import cuts


@dataclass(frozen=True)
class NamedPattern:
    """A split pattern with a name: ``name``, ``regex`` (syntax of the `regex` module) and ``cut``.

    ``cut`` is a regular expression over bytes; a document may be cut where a match of it starts (see
    `cuts`).
    """

    name: str
    regex: str
    cut: bytes


_PATTERNS = (
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `r50k_pat_str`, which it uses for gpt2. Equal, on every text, to
    # the pattern in GPT-2's encoder.py, and faster.
    NamedPattern(
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        cuts.GPT2,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `cl100k_base`. Older releases had the pattern that is `llama3`
    # below; the two differ in one place: white space that ends the text is one token here, line ends included.
    NamedPattern(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        cuts.CL100K,
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_base`.
    NamedPattern(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        cuts.O200K,
    ),
    # Meta's llama3 repository, llama/tokenizer.py, `pat_str`.
    NamedPattern(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        cuts.LLAMA3,
    ),
    # Qwen2's tokenizer.json, the `Split` pre-tokenizer; the same as `PRETOKENIZE_REGEX` in HuggingFace's
    # tokenization_qwen2.py. It differs from llama3 in taking digits one by one.
    NamedPattern(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        cuts.QWEN2,
    ),
)

NAMED_PATTERNS = {pattern.name: pattern for pattern in _PATTERNS}
