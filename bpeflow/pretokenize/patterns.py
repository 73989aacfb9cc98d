"""The split patterns that have a name.

Named patterns have tables and a faster scanner in the native library. The name of a published pattern is only another
way to write its expression (or its list of expressions, each of which splits the pieces of the one before):
`simplest_pattern` replaces it, so files never contain one of these names. Each entry names its source.
"""

from __future__ import annotations

from bpeflow._util.text import Pattern
from bpeflow._util.text import Utf8 as Utf8

#: The named patterns by name, in the syntax of the `regex` module.
NAMED_PATTERNS = {
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `r50k_pat_str`, which it uses for gpt2. On every text it is
    # equivalent to the pattern in GPT-2's encoder.py, and it is faster.
    "gpt2": (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `cl100k_base`. Older releases had the pattern `llama3` below. The
    # only difference: here, white space at the end of the text is one token, including line ends.
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    # tiktoken 0.14, tiktoken_ext/openai_public.py, `o200k_base`.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Meta's llama3 repository, llama/tokenizer.py, `pat_str`.
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Qwen2's tokenizer.json, the `Split` pre-tokenizer, which is also `PRETOKENIZE_REGEX` in HuggingFace's
    # tokenization_qwen2.py. Unlike llama3, it makes every digit a token of its own.
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

#: The regular expressions of the named patterns. They match all text.
NAMED_REGEXES = frozenset(NAMED_PATTERNS.values())

# ---- published patterns ----

_WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_KIMI = (
    r"[\p{{Han}}]+"
    r"|[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+"
    + _WORD_END
    + r"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*"
    + _WORD_END
    + r""
    r"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

#: The pattern of Kimi K2 as published (moonshotai/Kimi-K2-Instruct, tokenization_kimi.py), with intersections of
#: classes, which the `regex` module lacks by default.
KIMI_PUBLISHED = _KIMI.format(
    upper=r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", lower=r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
)

#: The same with lookaheads. Each repetition matches one character of the same class as before, so all engines find the
#: same matches.
KIMI = _KIMI.format(
    upper=r"(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower=r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])"
)

#: The three Splits in the ``tokenizer.json`` of DeepSeek-V3: digits, Chinese and Japanese, the rest.
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

#: The pattern of BLOOM as published (bigscience/bloom, tokenizer.json), for Oniguruma, where the inner brackets are a
#: set in the set.
BLOOM_PUBLISHED = r" ?[^(\s|[.,!?…。，、।۔،])]+"

#: The same without the inner brackets.
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

#: The published patterns by name.
PUBLISHED_PATTERNS: dict[str, Pattern] = {
    # mistral-common 1.12, data/tekken_240911.json, `pattern`.
    "tekken": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": KIMI,
    # meta-llama/llama-models, models/llama4/tokenizer.py.
    "llama4": "o200k",
    # transformers 5.23, models/qwen3_5/tokenization_qwen3_5.py, `PRETOKENIZE_REGEX`.
    "qwen3_5": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "bloom": _BLOOM,
    # bigcode/starcoder2-7b, tokenizer.json: `Digits`, each on its own, and `ByteLevel` with GPT-2's pattern. SmolLM has
    # the same.
    "starcoder": (r"\p{N}|\P{N}+", "gpt2"),
    # PythonNut/superbpe, scripts/extend_tokenizer.sh: the pattern of the second stage, with which the finished
    # tokenizer encodes. What it does not match, such as several words, is a pre-token, too.
    "superbpe": r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)",
    # karpathy/nanochat, nanochat/tokenizer.py, `SPLIT_PATTERN`.
    "nanochat": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
}
