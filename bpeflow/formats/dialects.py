"""What splits and normalizes text, in the terms of other tools: each part is either converted or refused.

*Patterns.* tiktoken uses fancy-regex (Rust), and HuggingFace tokenizers uses Oniguruma with Ruby's syntax. The named
patterns are proved to be read identically in the spelling that is written for each engine. Custom patterns with known
differences are refused. For all other custom patterns the log warns which engine will read them.

*The pre-tokenizer* of a ``tokenizer.json`` becomes a pattern. bpeflow reads a sequence of components and a final
`ByteLevel`. Each component splits the pieces of the previous one; a `ByteLevel` turns bytes into printable characters
and can split with GPT-2's pattern. `Split` has a regular expression, and `Digits` equals a `Split`. Source: HuggingFace
tokenizers 0.23, ``pre_tokenizers/split.rs``, ``digits.rs``, ``byte_level.rs`` and ``tokenizer/normalizer.rs`` (the
behaviors). *Its normalizer* becomes names of normalizers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from bpeflow._util.text import NormalizerName, Pattern, UnmatchedPolicy, short_repr, steps_of
from bpeflow.errors import FormatError, PatternTimeoutError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.formats.untrusted import Part, check_pattern, is_text
from bpeflow.pretokenize.patterns import BLOOM_PUBLISHED, KIMI, KIMI_PUBLISHED, NAMED_PATTERNS, PUBLISHED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer, simplest_pattern

log = logging.getLogger(__name__)

# ---- patterns ----

#: The regex engines of tiktoken and of HuggingFace tokenizers.
Engine = Literal["fancy-regex", "Oniguruma"]

#: Earlier spellings of GPT-2's pattern that split every text in the same way: as published with the model (encoder.py),
#: and as in tiktoken before 0.8.
_GPT2_SPELLINGS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)

#: cl100k for Oniguruma, which reads the possessive ``{1,3}+`` as "one to three, repeated". Nothing follows it in its
#: alternative, so ``{1,3}`` means the same.
_CL100K_ONIGURUMA = NAMED_PATTERNS["cl100k"].replace(r"\p{N}{1,3}+", r"\p{N}{1,3}")

#: The name of each known spelling of a named pattern, and our spelling of each known custom pattern.
_NAMES = {
    **{regex: name for name, regex in NAMED_PATTERNS.items()},
    **dict.fromkeys(_GPT2_SPELLINGS, "gpt2"),
    _CL100K_ONIGURUMA: "cl100k",
    KIMI_PUBLISHED: KIMI,
    BLOOM_PUBLISHED: str(PUBLISHED_PATTERNS["bloom"]),
}

#: Custom patterns that have been compared on every character, of which a warning would say nothing.
_COMPARED = frozenset(
    step for pattern in PUBLISHED_PATTERNS.values() for step in steps_of(pattern) if step not in NAMED_PATTERNS
)

#: Extends a pattern to text that it does not match.
_KEEP_UNMATCHED = r"(?:{0})|(?:(?!(?:{0}))[\s\S])+"

#: References to groups (which would have other numbers), named groups, and ``\K``.
_UNREPEATABLE = re.compile(r"\\[1-9gkK]|\(\?[(&RP0-9]")

#: Text in which most patterns of empty matches, such as ``(?=[A-Z])``, have one.
_PROBE = "The 12 ox'en,\r\n\tABéÉ 日本 \u0301 <a_b>."

#: The parts of a pattern that `_differences` looks at.
_ITEM = re.compile(r"\\.|\{\d*,?\d*\}\+|\(\?[a-zA-Z0-9-]*[:)]|\[\^?\]?|&&|--|~~|\|\||.", re.DOTALL)


def regex_to_pattern(regex: str) -> str:
    """Return the name of the named pattern with this regular expression, or the expression in our spelling."""
    return _NAMES.get(regex, regex)


def pattern_to_regex(pattern: str, engine: Engine, path: Path) -> str:
    """Return the regular expression with which `engine` splits text as `pattern`, a name or an expression, does.

    Raises `FormatError`, with `path`, for a custom pattern that the engine reads differently.
    """
    if pattern in NAMED_PATTERNS:
        return _CL100K_ONIGURUMA if (pattern, engine) == ("cl100k", "Oniguruma") else NAMED_PATTERNS[pattern]
    refuse_differences(pattern, engine, path)
    return pattern


def keep_unmatched(regex: str, path: Path) -> str:
    r"""Return an expression that matches what `regex` does, and each stretch between two matches.

    For tools that drop what their pattern does not match. A stretch is a run of characters at none of which `regex`
    matches, so an engine that searches from left to right finds the same matches as before. Expressions that
    `refuse_differences` refuses must not be passed.

    >>> keep_unmatched(r"\w+", Path("x"))
    '(?:\\w+)|(?:(?!(?:\\w+))[\\s\\S])+'

    Raises:
        FormatError: `regex` has a part that cannot occur twice or in a lookahead.
    """
    if load_pretokenizer(regex).compiled[0].groupindex or _UNREPEATABLE.search(regex):
        raise FormatError(
            f"{path}: pattern {short_repr(regex)}: tiktoken drops text that it does not match, and a pattern with "
            "named groups, references to groups or \\K cannot be extended to that text automatically; write it so that "
            "it matches all text, and use unmatched='drop'"
        )
    return _KEEP_UNMATCHED.format(regex)


def split_unmatched(regex: str) -> tuple[str, UnmatchedPolicy]:
    """Return the expression that `keep_unmatched` extended, or `regex` itself; and what happens to unmatched text."""
    before, between, after = _KEEP_UNMATCHED.split("{0}")
    length = (len(regex) - len(before) - len(between) - len(after)) // 2
    inner = regex[len(before) : len(before) + length]
    return (inner, "isolate") if inner and regex == _KEEP_UNMATCHED.format(inner) else (regex, "drop")


def unmatched_is_error(path: Path, format_: str) -> FormatError:
    """Return the error for a tokenizer that refuses unmatched text, in a format that cannot."""
    return FormatError(
        f"{path}: {format_} cannot refuse text that the pattern does not match (unmatched='error'); use "
        "unmatched='isolate', with which all other text has the same ids"
    )


def refuse_differences(regex: str, engine: Engine, path: Path) -> None:
    r"""Raise `FormatError` for the first part of `regex` that `engine` and the `regex` module read differently.

    For all other expressions, warn of the differences that cannot be excluded: characters that only one of the two
    Unicode versions has, and in Oniguruma ``\w``, which does not match ``²`` and ``½``, and ``(?i:ss)``, which matches
    ``ß``.
    """
    for item, position in _differences(regex, engine):
        raise FormatError(
            f"{path}: pattern {short_repr(regex)}, character {position}: {engine} and the regex module read {item}; "
            "rewrite it so that it has only one meaning"
        )
    pretokenizer = load_pretokenizer(regex)
    try:
        spans = [*pretokenizer.match_spans(""), *pretokenizer.match_spans(_PROBE)]
    except PatternTimeoutError as error:
        raise FormatError(f"{path}: {error}") from None
    if any(start == end for start, end in spans):
        raise FormatError(
            f"{path}: pattern {short_repr(regex)} can match the empty string, after which engines continue "
            "differently; make each alternative match at least one character"
        )
    if regex in _COMPARED:
        return
    log.warning(
        "%s: %s and bpeflow's regex module may read this custom pattern differently for rare characters: %s",
        path,
        engine,
        short_repr(regex),
    )


def _differences(regex: str, engine: Engine) -> Iterator[tuple[str, int]]:
    """Yield what is read differently, and its position. Source: the manuals of the three engines; tests confirm it."""
    depth = 0
    for match in _ITEM.finditer(regex):
        item, position = match.group(), match.start()
        if depth and item.startswith("["):
            yield "'[' inside a class differently (as a nested class or as a character)", position
        elif item.startswith("["):
            depth = 1
        elif item == "]":
            depth = 0
        elif depth and item in ("&&", "--", "~~", "||"):
            yield f"{item!r} inside a class differently (as an operator or as characters)", position
        elif item in (r"\h", r"\H", r"\Z", r"\R", r"\X", r"\G", r"\N", r"\<", r"\>", r"\m", r"\M", r"\L"):
            yield f"{item!r} differently", position
        elif not depth and item in ("^", "$"):
            yield (
                f"{item!r} differently (for the text or for each line); (?![\\s\\S]) is always the end of the text",
                position,
            )
        elif not depth and engine == "Oniguruma" and item.endswith("}+"):
            yield f"{item!r} differently (as possessive or as repeated)", position
        elif not depth and item.startswith("(?") and item not in ("(?:", "(?i:"):
            yield f"the flags {item!r} differently", position


# ---- pre-tokenizers ----

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
    """Return the regular expression of a `Split`, made from its string if it has none."""
    texts = pattern.value if isinstance(pattern.value, dict) else {}
    text = texts.get("Regex") or texts.get("String")
    if len(texts) != 1 or not is_text(text):
        raise pattern.refusal("bpeflow splits with a regular expression")
    regex = text if "Regex" in texts else re.escape(text)
    return f"(?:{regex})" if _WORD.fullmatch(regex) else regex


def write_pre_tokenizer(spec: TokenizerSpec, path: Path) -> dict[str, Any]:
    """Return the pre-tokenizer that splits as `spec` does. Raises `FormatError` if there is none."""
    *before, last = steps_of(spec.pattern)
    splits = [_split(pattern, spec.unmatched, path) for pattern in [*before, *([] if last == "gpt2" else [last])]]
    steps = [*splits, byte_level(use_regex=last == "gpt2")]
    return {"type": "Sequence", "pretokenizers": steps} if splits else steps[0]


def _split(pattern: str, unmatched: UnmatchedPolicy, path: Path) -> dict[str, Any]:
    regex = pattern_to_regex(pattern, "Oniguruma", path)
    unmatched = "isolate" if pattern in NAMED_PATTERNS else unmatched
    if unmatched == "error":
        raise unmatched_is_error(path, "tokenizer.json")
    drops = unmatched == "drop"
    behavior = "Removed" if drops else "Isolated"
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": drops}


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Return the component that turns bytes into printable characters, and optionally splits with GPT-2's pattern."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


# ---- normalizers ----

_NORMALIZER_TYPES: dict[NormalizerName, str] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
}
_NORMALIZERS = {type_: name for name, type_ in _NORMALIZER_TYPES.items()}

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
        elif isinstance(step.type, str) and step.type in _NORMALIZERS:
            names.append(_NORMALIZERS[step.type])
        else:
            raise step.refusal(
                f"bpeflow has {', '.join(_NORMALIZERS)} and Sequences of these; normalize your text yourself, and set "
                "normalizer to null in the file"
            )
    return tuple(names)


def normalizer_to_json(names: Sequence[NormalizerName]) -> dict[str, Any] | None:
    """Return the ``normalizer`` of a ``tokenizer.json``."""
    steps = [{"type": _NORMALIZER_TYPES[name]} for name in names]
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
