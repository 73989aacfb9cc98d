"""The parts of a ``tokenizer.json`` that bpeflow reads and writes besides the model: each is either read or refused.

A *pre-tokenizer* becomes a pattern. Those that bpeflow reads are a sequence of components that split text, each the
pieces of the one before, and a `ByteLevel`, which turns bytes into printable characters and can split with GPT-2's
pattern. `Split` has a regular expression. `Digits` is the same as a `Split`. Source: HuggingFace tokenizers 0.23,
``pre_tokenizers/split.rs``, ``digits.rs``, ``byte_level.rs`` and ``tokenizer/normalizer.rs`` (the behaviors).

A *normalizer* becomes names of normalizers. This module also refuses one for the formats that cannot hold any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr
from bpeflow.errors import FormatError
from bpeflow.formats.regex_dialects import (
    check_pattern,
    pattern_to_regex,
    refuse_differences,
    regex_to_pattern,
    unmatched_is_error,
)
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import is_text
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import simplest_pattern

# ---- components in general ----


def read_flag(values: Mapping[str, Any], key: str, where: str, path: Path, default: bool = False) -> bool:
    """Return a value that is true or false. Raises `FormatError` for any other."""
    value = values.get(key, default)
    if type(value) is not bool:
        raise FormatError(f"{path}: {where}: need true or false, found {short_repr(value)}")
    return value


def type_of(part: object) -> object:
    """Return the type of a component, or `part` itself if it is none."""
    return part.get("type") if isinstance(part, dict) else part


def refuse(path: Path, where: str, part: object, reason: str) -> NoReturn:
    """Raise `FormatError` for a part that bpeflow does not support."""
    raise FormatError(f"{path}: {where}: {short_repr(describe(part))} is not supported: {reason}")


def describe(part: object) -> object:
    """Return the type of a part, or the types of the steps of a sequence."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        steps = next((value for value in part.values() if isinstance(value, list)), [])
        return f"Sequence of {', '.join(str(type_of(step)) for step in steps)}"
    return type_of(part) if isinstance(part, dict) and "type" in part else part


# ---- pre-tokenizers ----

#: For each way to treat unmatched text, the `behavior` and `invert` of a `Split` that does the same.
_BEHAVIORS: dict[UnmatchedPolicy, tuple[str, bool]] = {"isolate": ("Isolated", False), "drop": ("Removed", True)}

#: The expression of `Digits`, by `individual_digits`. Both match all text.
_DIGITS = {True: r"\p{N}|\P{N}+", False: r"\p{N}+|\P{N}+"}

#: An expression that would be taken for the name of a pattern.
_WORD = re.compile(r"[A-Za-z0-9_-]+")

#: The pattern of a pre-tokenizer that does not split at all.
_WHOLE_TEXT = r"[\s\S]+"


def read_pre_tokenizer(value: object, path: Path) -> tuple[Pattern, UnmatchedPolicy]:
    """Return the pattern, and what to do with text that it does not match. Raises `FormatError` if there is none."""
    steps = [value]
    if isinstance(value, dict) and value.get("type") == "Sequence":
        steps = value.get("pretokenizers", [])
    *splits, last = steps if isinstance(steps, list) and steps else [None]
    if not isinstance(last, dict) or last.get("type") != "ByteLevel":
        refuse(path, "pre_tokenizer", value, "bpeflow needs ByteLevel, alone or after a Split")
    if read_flag(last, "add_prefix_space", "pre_tokenizer.add_prefix_space", path, default=True):
        refuse(path, "pre_tokenizer.add_prefix_space", True, "bpeflow does not prepend a space to text")
    patterns = []
    policies: set[UnmatchedPolicy] = set()
    for split in splits:
        pattern, policy = _read_split(split, path)
        patterns.append(pattern)
        if policy is not None:
            policies.add(policy)
    if read_flag(last, "use_regex", "pre_tokenizer.use_regex", path, default=True):
        patterns.append("gpt2")
    if len(policies) > 1:
        refuse(path, "pre_tokenizer", value, "bpeflow drops unmatched text with all of several Splits or with none")
    return simplest_pattern(patterns or [_WHOLE_TEXT]), policies.pop() if policies else "isolate"


def _read_split(split: object, path: Path) -> tuple[str, UnmatchedPolicy | None]:
    """Return the pattern of a component, and the policy for unmatched text; None if the pattern matches all text."""
    if not isinstance(split, dict) or split.get("type") not in ("Split", "Digits"):
        refuse(path, "pre_tokenizer", split, "bpeflow splits with a regular expression")
    if type_of(split) == "Digits":
        return _DIGITS[read_flag(split, "individual_digits", "pre_tokenizer.Digits.individual_digits", path)], None
    where = "pre_tokenizer.Split"
    regex = _read_regex(split.get("pattern"), path, f"{where}.pattern")
    behavior = split.get("behavior")
    inverted = read_flag(split, "invert", f"{where}.invert", path)
    unmatched: UnmatchedPolicy = "isolate" if behavior == "Isolated" else "drop"
    if unmatched == "drop" and not (behavior == "Removed" and inverted):
        refuse(path, f"{where}.behavior", behavior, "in bpeflow the matches are the pre-tokens")
    name = regex_to_pattern(regex)
    if name in NAMED_PATTERNS and (name != "cl100k" or regex == pattern_to_regex(name, "Oniguruma", path)):
        return name, None
    regex = regex if name in NAMED_PATTERNS else name
    refuse_differences(check_pattern(regex, path), "Oniguruma", path)
    return regex, unmatched


def _read_regex(pattern: object, path: Path, where: str) -> str:
    """Return the regular expression of a `Split`, which has one or a string to search for."""
    texts = pattern if isinstance(pattern, dict) else {}
    text = texts.get("Regex") or texts.get("String")
    if len(texts) != 1 or not text or not is_text(text):
        refuse(path, where, pattern, "bpeflow splits with a regular expression")
    regex = str(text) if "Regex" in texts else re.escape(text)
    return f"(?:{regex})" if _WORD.fullmatch(regex) else regex


def write_pre_tokenizer(spec: TokenizerSpec, path: Path) -> dict[str, Any]:
    """Return the pre-tokenizer that splits as `spec` does. Raises `FormatError` if there is none."""
    *before, last = (spec.pattern,) if isinstance(spec.pattern, str) else spec.pattern
    splits = [_split(pattern, spec.unmatched, path) for pattern in [*before, *([] if last == "gpt2" else [last])]]
    steps = [*splits, byte_level(use_regex=last == "gpt2")]
    return {"type": "Sequence", "pretokenizers": steps} if splits else steps[0]


def _split(pattern: str, unmatched: UnmatchedPolicy, path: Path) -> dict[str, Any]:
    regex = pattern_to_regex(pattern, "Oniguruma", path)
    unmatched = "isolate" if pattern in NAMED_PATTERNS else unmatched
    if unmatched == "error":
        raise unmatched_is_error(path, "tokenizer.json")
    behavior, invert = _BEHAVIORS[unmatched]
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Return the component that turns bytes into printable characters, and optionally splits with GPT-2's pattern."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


# ---- normalizers ----

_TYPES: dict[NormalizerName, str] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}

#: ASCII that NFC and NFD keep wherever it is: without characters that others become (U+212A becomes K, U+037E a
#: semicolon, U+1FEF a backquote), and without a last character that is composed with marks after it.
_KEPT = r"[^K;`\x80-\U0010ffff]*[^A-Za-z<=>;`\x80-\U0010ffff]"

_CANONICAL = frozenset({"nfc", "nfd"})


def read_normalizer(value: object, path: Path) -> tuple[NormalizerName, ...]:
    """Read the ``normalizer`` of a ``tokenizer.json``. Raises `FormatError` for a type that bpeflow does not have."""
    names: list[NormalizerName] = []
    steps = [] if value is None else [value]
    while steps:
        step = steps.pop(0)
        type_ = step.get("type") if isinstance(step, dict) else step
        nested = step.get("normalizers") if isinstance(step, dict) and type_ == "Sequence" else None
        if isinstance(nested, list):
            steps[:0] = nested
        elif isinstance(step, dict) and isinstance(type_, str) and type_ in _NAMES:
            names.append(_NAMES[type_])
        else:
            raise FormatError(
                f"{path}: normalizer: {short_repr(type_)} is not supported: bpeflow has {', '.join(_NAMES)} and "
                "Sequences of these; normalize your text yourself, and set normalizer to null in the file"
            )
    return tuple(names)


def normalizer_to_json(names: Sequence[NormalizerName]) -> dict[str, Any] | None:
    """Return the ``normalizer`` of a ``tokenizer.json``."""
    steps = [{"type": _TYPES[name]} for name in names]
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else next(iter(steps), None)


def check_normalized_tokens(tokens: Iterable[str], normalizer: Sequence[NormalizerName], path: Path) -> None:
    """Refuse normalized added tokens that bpeflow would not find in the same places.

    HuggingFace's tokenizers normalize these tokens, and search for them in the normalized text. bpeflow searches the
    text as it is. Both find the same if the token is ASCII that a canonical form neither changes nor makes of other
    characters, and that ends in a character which is never composed. Then text can also be normalized before and after
    the token separately, because an ASCII character is never composed with one before it.
    """
    if not normalizer:
        return
    for token in tokens:
        if not (_CANONICAL.issuperset(normalizer) and re.fullmatch(_KEPT, token)):
            raise FormatError(
                f"{path}: added_tokens: {short_repr(token)} is searched for in the normalized text "
                f"({', '.join(normalizer)}), and bpeflow searches for special tokens before normalizing; set its "
                '"normalized" to false in the file if that is what you want'
            )


def refuse_normalizer(spec: TokenizerSpec, path: Path, format_: str) -> None:
    """Raise `FormatError` if a tokenizer has a normalizer, for a format that has none."""
    if spec.normalizer:
        raise FormatError(
            f"{path}: {format_} has no normalizers, and this tokenizer has {', '.join(spec.normalizer)}; use the "
            "format huggingface or gpt2"
        )
