"""How formats write split patterns, and which patterns other engines read otherwise than the `regex` module does.

tiktoken has fancy-regex (Rust), HuggingFace tokenizers has Oniguruma with Ruby's syntax. The named patterns are proved
to be read alike, each in the spelling that is written here. What is known to be read otherwise in a custom pattern is
refused; for the rest of it the log tells which engine will read it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from bpeflow.errors import FormatError, PatternError
from bpeflow.formats.untrusted import shown
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

Engine = Literal["fancy-regex", "Oniguruma"]

#: GPT-2's pattern as published with the model (encoder.py) and as tiktoken had it before 0.8; equal on every text.
_GPT2_OLDER = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)

#: Oniguruma takes ``{1,3}+`` for "one to three, once or more". As nothing follows it, ``{1,3}`` says the same.
_CL100K_ONIGURUMA = NAMED_PATTERNS["cl100k"].regex.replace(r"\p{N}{1,3}+", r"\p{N}{1,3}")

_NAMES = {
    **{pattern.regex: name for name, pattern in NAMED_PATTERNS.items()},
    **dict.fromkeys(_GPT2_OLDER, "gpt2"),
    _CL100K_ONIGURUMA: "cl100k",
}

_LONGEST_PATTERN = 100_000
_ITEM = re.compile(r"\\.|\{\d*,?\d*\}\+|\(\?[a-zA-Z0-9-]*[:)]|\[\^?\]?|&&|--|~~|\|\||.", re.DOTALL)
log = logging.getLogger(__name__)


def named(regex: str) -> str:
    """The name of a pattern, where it has one; else the expression itself."""
    return _NAMES.get(regex, regex)


def spelled(pattern: str, engine: Engine, path: Path) -> str:
    """The expression by which `engine` splits as `pattern`, a name or an expression, does.

    Raises `FormatError`, which names `path`, for an expression that it reads otherwise.
    """
    if pattern in NAMED_PATTERNS:
        return _CL100K_ONIGURUMA if (pattern, engine) == ("cl100k", "Oniguruma") else NAMED_PATTERNS[pattern].regex
    refuse_differences(pattern, engine, path)
    return pattern


def check_pattern(pattern: str, path: Path) -> str:
    """Return `pattern`, a name or an expression of the `regex` module. Raises `FormatError` where it is neither."""
    if len(pattern) > _LONGEST_PATTERN:
        raise FormatError(f"{path}: a pattern of {len(pattern)} characters")
    try:
        load_pretokenizer(pattern)
    except PatternError as error:
        raise FormatError(f"{path}: {error}") from error
    return pattern


def refuse_differences(regex: str, engine: Engine, path: Path) -> None:
    """Raise `FormatError` for the first thing in `regex` that `engine` reads otherwise than the `regex` module.

    Warn of what remains: characters that one version of Unicode has and another has not, and in Oniguruma ``\\w``,
    which leaves out ``²`` and ``½``, and ``(?i:ss)``, which matches ``ß``.
    """
    for item, place in _differences(regex, engine):
        raise FormatError(
            f"{path}: pattern {shown(regex)}, character {place}: {engine} and the regex module read {item}; "
            "write it in a way that has one meaning"
        )
    if load_pretokenizer(regex).compiled.match(""):
        raise FormatError(
            f"{path}: pattern {shown(regex)} matches nothing at all, too, after which engines go on differently; let "
            "each alternative match at least one character"
        )
    log.warning(
        "%s: a custom pattern, which %s there and the regex module here may read differently for rare characters: %s",
        path,
        engine,
        shown(regex),
    )


def _differences(regex: str, engine: Engine) -> Iterator[tuple[str, int]]:
    """What is read differently, with its place. Source: the manuals of the three; held against them by tests."""
    depth = 0
    for match in _ITEM.finditer(regex):
        item, place = match.group(), match.start()
        if depth and item.startswith("["):
            yield "'[' within a class differently (a class in it, or a character)", place
        elif item.startswith("["):
            depth = 1
        elif item == "]":
            depth = 0
        elif depth and item in ("&&", "--", "~~", "||"):
            yield f"{item!r} within a class differently (an operator, or characters)", place
        elif item in (r"\h", r"\H", r"\Z", r"\R", r"\X", r"\G", r"\N", r"\<", r"\>", r"\m", r"\M", r"\L"):
            yield f"{item!r} differently", place
        elif not depth and item in ("^", "$"):
            yield f"{item!r} differently (the text's end, or a line's); (?![\\s\\S]) is the end of the text", place
        elif not depth and engine == "Oniguruma" and item.endswith("}+"):
            yield f"{item!r} differently (possessive, or repeated)", place
        elif not depth and item.startswith("(?") and item not in ("(?:", "(?i:"):
            yield f"the flags {item!r} differently", place
