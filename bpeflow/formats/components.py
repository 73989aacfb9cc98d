"""The parts of a ``tokenizer.json`` that bpeflow reads and writes besides the model: each is either read or refused.

A *pre-tokenizer* becomes a pattern. Those that bpeflow reads are a sequence of components that split text, each the
pieces of the one before, and a `ByteLevel`, which turns bytes into printable characters and can split with GPT-2's
pattern. `Split` has a regular expression. `Digits` is the same as a `Split`. Source: HuggingFace tokenizers 0.23,
``pre_tokenizers/split.rs``, ``digits.rs``, ``byte_level.rs`` and ``tokenizer/normalizer.rs`` (the behaviors).

A *normalizer* becomes names of normalizers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
from bpeflow.formats.untrusted import Part, is_text
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import simplest_pattern

# ---- pre-tokenizers ----

#: For each way to treat unmatched text, the `behavior` and `invert` of a `Split` that does the same.
_BEHAVIORS: dict[UnmatchedPolicy, tuple[str, bool]] = {"isolate": ("Isolated", False), "drop": ("Removed", True)}

#: The expression of `Digits`, by `individual_digits`. Both match all text.
_DIGITS = {True: r"\p{N}|\P{N}+", False: r"\p{N}+|\P{N}+"}

#: An expression that would be taken for the name of a pattern.
_WORD = re.compile(r"[A-Za-z0-9_-]+")

#: The pattern of a pre-tokenizer that does not split at all.
_WHOLE_TEXT = r"[\s\S]+"


def read_pre_tokenizer(part: Part) -> tuple[Pattern, UnmatchedPolicy]:
    """Return the pattern, and what to do with text that it does not match. Raises `FormatError` if there is none."""
    steps = part["pretokenizers"].entries() if part.type == "Sequence" else [part]
    *splits, last = steps or [part]
    if last.type != "ByteLevel":
        raise part.refusal("bpeflow needs ByteLevel, alone or after a Split")
    if last["add_prefix_space"].flag(default=True):
        raise last["add_prefix_space"].refusal("bpeflow does not prepend a space to text, and needs false")
    patterns = []
    policies: set[UnmatchedPolicy] = set()
    for split in splits:
        pattern, policy = _read_split(split)
        patterns.append(pattern)
        if policy is not None:
            policies.add(policy)
    if last["use_regex"].flag(default=True):
        patterns.append("gpt2")
    if len(policies) > 1:
        raise part.refusal("bpeflow drops unmatched text with all of several Splits or with none")
    return simplest_pattern(patterns or [_WHOLE_TEXT]), policies.pop() if policies else "isolate"


def _read_split(split: Part) -> tuple[str, UnmatchedPolicy | None]:
    """Return the pattern of a component, and the policy for unmatched text; None if the pattern matches all text."""
    if split.type == "Digits":
        return _DIGITS[split["individual_digits"].flag()], None
    if split.type != "Split":
        raise split.refusal("bpeflow splits with a regular expression")
    regex = _read_regex(split["pattern"])
    behavior, inverted = split["behavior"], split["invert"].flag()
    unmatched: UnmatchedPolicy = "isolate" if behavior.value == "Isolated" else "drop"
    if unmatched == "drop" and not (behavior.value == "Removed" and inverted):
        raise behavior.refusal("in bpeflow the matches are the pre-tokens")
    name = regex_to_pattern(regex)
    if name in NAMED_PATTERNS and (name != "cl100k" or regex == pattern_to_regex(name, "Oniguruma", split.path)):
        return name, None
    regex = regex if name in NAMED_PATTERNS else name
    refuse_differences(check_pattern(regex, split.path), "Oniguruma", split.path)
    return regex, unmatched


def _read_regex(pattern: Part) -> str:
    """Return the regular expression of a `Split`, which has one or a string to search for."""
    texts = pattern.value if isinstance(pattern.value, dict) else {}
    text = texts.get("Regex") or texts.get("String")
    if len(texts) != 1 or not text or not is_text(text):
        raise pattern.refusal("bpeflow splits with a regular expression")
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


def read_normalizer(part: Part) -> tuple[NormalizerName, ...]:
    """Read the ``normalizer`` of a ``tokenizer.json``. Raises `FormatError` for a type that bpeflow does not have."""
    names: list[NormalizerName] = []
    steps = [] if part.value is None else [part]
    while steps:
        step = steps.pop(0)
        if step.type == "Sequence" and isinstance(step["normalizers"].value, list):
            steps[:0] = step["normalizers"].entries()
        elif isinstance(step.type, str) and step.type in _NAMES:
            names.append(_NAMES[step.type])
        else:
            raise step.refusal(
                f"bpeflow has {', '.join(_NAMES)} and Sequences of these; normalize your text yourself, and set "
                "normalizer to null in the file"
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
