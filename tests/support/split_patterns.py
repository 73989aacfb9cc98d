"""Split patterns to compile: those of published tokenizers, likely ones, and random ones; and texts to split."""

from __future__ import annotations

import random

from bpeflow.pretokenize.patterns import DEEPSEEK_V3, NAMED_PATTERNS, PUBLISHED_PATTERNS

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"

#: Patterns by the tokenizers that have them, or by what they do. All of them can be compiled.
SPLIT_PATTERNS = {
    **NAMED_PATTERNS,
    **{name: source for name, source in PUBLISHED_PATTERNS.items() if isinstance(source, str) and name != "llama4"},
    "gpt2_original": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "deepseek_v3_1": DEEPSEEK_V3[0],
    "deepseek_v3_2": DEEPSEEK_V3[1],
    "deepseek_v3_3": DEEPSEEK_V3[2],
    "deepseek_llm_letters": r"\s?\p{L}+",
    "deepseek_llm_punctuation": r"\s?\p{P}+",
    "deepseek_llm_cjk": "[一-龥ࠀ-一가-퟿]+",
    "spaces": " ",
    "starcoder_digits": r"\p{N}|\P{N}+",
    "bloom_published": r" ?[^(\s|[.,!?…。，、।۔،])]+".replace("])]", r"\])]"),
    "falcon_three_digits": "[0-9][0-9][0-9]",
    "falcon_punctuation": r"[^\s\w]+|_",
    "words_and_spaces": r"\S+|\s+",
    "words": r"\S+",
    "words_or_punctuation": r"\w+|[^\w\s]+",
    "metaspace": r"▁?[^▁]+|▁+",
    "lines": r"[^\n]*\n|[^\n]+",
    "scripts": r"\p{Han}|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES,
    "bert": r"[^\s\p{P}\p{S}]+|[\p{P}\p{S}]",
    "minimax": _CONTRACTIONS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|[^\S\r\n]*[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES,
    "seed_oss": _CONTRACTIONS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+" + _SPACES,
    "jais": r"'s|'t|'re|'ve|'m|'ll|'d|\s?\p{L}+|\s?\p{N}+|\s?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "chameleon_sentinel": r"<sentinel:[0-9]+>",
    "chameleon_image": r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    "chameleon_spaces": r"([\t\n]|    |  )",
    "chameleon_punctuation": r"[\p{P}!-/:-@\[-`{-~]",
    "camel_case": r"\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{N}{1,3}|[ \t]+(?=[^\s])|\s+|[^\s\p{L}\p{N}]+|.",
    "lazy": r"\w{2,4}?|\W",
    "quadratic": r"a+b|.",
}  # fmt: skip

#: Characters that patterns tell apart.
HOT = (
    "  \n\n\r\t\v\u00a0\u3000\u2028\x85\x1c'''sdmtSſKkLlVvEeRr09٣½Ⅷa\u0301中字あアーА한яßİıǅʰ"
    ".,!?/_-()<>▁aabIMGZ\U0001f600\u200dé\x00\ufffd\u0378\U0010ffff"
)


def nasty_text(chance: random.Random, length: int, run: int = 5) -> str:
    """Return random characters of `HOT`, about half of them in runs of up to `run`."""
    pieces = (chance.choice(HOT) * chance.choice((1, 1, 1, 2, run)) for _ in range(length))
    return "".join(pieces)[:length]


def ascii_text(chance: random.Random, length: int) -> str:
    """Return mostly short runs of ASCII characters, in stretches of one to some hundred, with others in between."""
    text, ascii_characters = "", [one for one in HOT if one < "\x80"] + [*"aeist  ,.12"]
    while len(text) < length:
        characters = chance.choices(ascii_characters, k=chance.choice((2, 4, 20)))
        for _ in range(chance.choice((1, 20, 100))):
            text += chance.choice(characters) * chance.choice((1, 1, 2, 3, 5))
        text += chance.choice(("", chance.choice(HOT), nasty_text(chance, 5)))
    return text[:length]


_SETS = [
    *[r"\p{L}", r"\p{N}", r"\s", r"\S", r"\w", r"\d", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{P}", r"\p{Han}", r"\P{L}"],
    *[r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"[\r\n]", r"[\r\n/]", "[a-z]", "[^a]", r"[\s\S]", r"[\p{L}\p{M}]"],
    *[r"\n", r"\r", " ", "a", "s", "k", "'", "ß", "é", "[!-/:-@]", "中", r"\t", r"\W", r"\D", "[ſK]", r"\x20", "."],
    *[r"\u00e9", r"\.", "-", "_", "[]a]", "[^]a]", "[a-]", r"[\]\-]", "[[a]", r"\pN", r"\p{^L}"],
]  # fmt: skip
_QUANTIFIERS = ["", "", "", "", "?", "*", "+", "{1,3}", "{2}", "{2,}", "{,2}", "??", "*?", "+?", "{1,3}?"]
_POSSESSIVE = ["?+", "*+", "++", "{1,3}+", "{2}+"]


def random_pattern(chance: random.Random, depth: int = 2) -> str:
    """Return a random pattern of the syntax that can be compiled. A few are refused, or invalid."""
    branches = chance.choice((1, 1, 2, 2, 3)) if depth < 2 else chance.choice((1, 2, 3, 4))
    return "|".join(_sequence(chance, depth) for _ in range(branches))


def _sequence(chance: random.Random, depth: int) -> str:
    items = "".join(_item(chance, depth) for _ in range(chance.choice((1, 1, 2, 2, 3, 4))))
    if depth < 2 or chance.random() < 0.4:
        return items
    return chance.choice(_SETS) + chance.choice(["", "+", "{1,3}", "+?", "++"]) + items  # it is not empty


def _item(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    one, other = chance.choice(_SETS), chance.choice(_SETS)
    if kind < 0.1:
        return one + chance.choice(_POSSESSIVE)
    if kind < 0.12:
        return f"(?>{one}{chance.choice(['+', '*', '{1,2}', '?', ''])})"
    if kind < 0.22:
        return chance.choice(["(?=", "(?!"]) + chance.choice([one, f"{one}|{other}", rf"{one}|\Z", f"{one}+"]) + ")"
    if kind < 0.24:
        return r"\Z"
    if kind < 0.27:
        return chance.choice([r"\s+$", r"\s++$", r"[\s\S]+$"])
    if depth and kind < 0.45:
        opening = chance.choice(["(?:", "(?:", "(?:", "(", "(?i:", "(?s:", "(?<name>"])
        return f"{opening}{random_pattern(chance, depth - 1)}){chance.choice(_QUANTIFIERS)}"
    return one + chance.choice(_QUANTIFIERS)
