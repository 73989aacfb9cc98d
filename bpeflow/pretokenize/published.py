r"""The split patterns of published tokenizers, by name.

A name is only another way to write its expression (or its list of expressions, each of which splits the pieces of the
one before): `simplest_pattern` replaces it, so files never contain one of these names. Each entry names its source.
"""

from __future__ import annotations

from bpeflow._util.text import Pattern

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
