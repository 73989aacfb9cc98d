"""The pre-tokenizer: text in, pre-tokens out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING

from bpeflow.errors import PatternError
from bpeflow.pretokenize import cuts
from bpeflow.pretokenize.patterns import NAMED_PATTERNS

if TYPE_CHECKING:
    import regex

_CUSTOM = "custom"


class Pretokenizer:
    r"""Splits text into pre-tokens with one regular expression; made by `load_pretokenizer`.

    ``name`` is the pattern's name, or ``"custom"``; ``regex`` its source; ``unicode_version`` the version of Unicode
    that its character classes follow. Pickles as its source, and is compiled where and when it is first used: most
    processes leave the named patterns to the native scanner, and the `regex` module alone.
    """

    def __init__(self, name: str, source: str, cut: bytes | None = None) -> None:
        """``cut``: a regular expression over bytes whose matches start at safe cuts (see `cuts`); None for none."""
        self.name = name
        self.regex = source
        self._cut = None if cut is None else re.compile(cut)

    @cached_property
    def compiled(self) -> regex.Pattern[str]:
        """The pattern of the `regex` module. Raises PatternError for an invalid one."""
        return _compile(self.regex)

    @property
    def unicode_version(self) -> str:
        return unicode_version()

    @property
    def custom(self) -> bool:
        """Whether the pattern is the user's own, of which nothing is known: it is never cut."""
        return self.name == _CUSTOM

    def pretokens(self, text: str) -> list[str]:
        """The matches of the pattern in ``text``, from left to right, without empty ones.

        Text that a custom pattern does not match is in no pre-token; the named patterns match everything.

        >>> load_pretokenizer("gpt2").pretokens("Hello, world's")
        ['Hello', ',', ' world', "'s"]
        """
        if self.compiled.groups:  # findall would return the groups instead of the match
            return [match.group() for match in self.compiled.finditer(text) if match.group()]
        tokens: list[str] = self.compiled.findall(text)
        return [token for token in tokens if token] if self.custom else tokens

    def find_cut(self, window: cuts.Utf8, start: int) -> int | None:
        """The first position ``>= start`` at which a document that contains ``window`` may be cut.

        Positions count bytes from the beginning of ``window``. A position is judged by `cuts.LOOK_BEHIND` bytes before
        it, which must be in the window unless the document begins there, and by `cuts.LOOK_AHEAD` bytes from it on:
        where fewer are left in the window a cut may be missed. Neither 0 nor ``len(window)`` is ever the answer. None
        if there is no such position, and always for a custom pattern.

        >>> load_pretokenizer("gpt2").find_cut(b"one two three", 4)
        7
        """
        if self._cut is None:
            return None
        return cuts.find_cut(self._cut, window, start)

    def find_last_cut(self, window: cuts.Utf8) -> int | None:
        """The last position at which a document that contains ``window`` may be cut; otherwise as `find_cut`.

        >>> load_pretokenizer("gpt2").find_last_cut(b"one two three")
        7
        """
        return None if self._cut is None else cuts.find_last_cut(self._cut, window)

    def __reduce__(self) -> tuple[Callable[[str], Pretokenizer], tuple[str]]:
        return load_pretokenizer, (self.regex if self.custom else self.name,)

    def __repr__(self) -> str:
        return f"load_pretokenizer({self.regex if self.custom else self.name!r})"


def load_pretokenizer(pattern: str) -> Pretokenizer:
    """The pre-tokenizer of a named pattern (see `patterns.NAMED_PATTERNS`), or of a regular expression.

    Raises PatternError for an invalid regular expression, and for a single word that is no name (`gtp2`, `r50k`): as a
    regular expression it would match nothing but itself, which cannot be meant.
    """
    if not isinstance(pattern, str):
        kind = type(pattern).__name__
        raise PatternError(f"a pattern is a name or a regular expression as a str, not {kind}")
    if pattern in NAMED_PATTERNS:
        named = NAMED_PATTERNS[pattern]
        return Pretokenizer(named.name, named.regex, named.cut)
    if not pattern:
        raise PatternError(f"the pattern is empty; use one of {', '.join(NAMED_PATTERNS)}, or a regular expression")
    if re.fullmatch(r"[A-Za-z0-9_-]+", pattern):
        nearest = difflib.get_close_matches(pattern.lower(), NAMED_PATTERNS, n=1)
        meant = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise PatternError(f"unknown pattern {pattern!r}; {meant}the named patterns are {', '.join(NAMED_PATTERNS)}")
    pretokenizer = Pretokenizer(_CUSTOM, pattern)
    _ = pretokenizer.compiled  # to refuse an invalid one now
    return pretokenizer


def _compile(source: str) -> regex.Pattern[str]:
    import regex

    try:
        return regex.compile(source)
    # The last three: flags that exclude each other (in older versions a KeyError), thousands of nested groups.
    except (regex.error, ValueError, KeyError, RecursionError) as error:
        raise PatternError(f"invalid regular expression {source!r}: {error}") from error


# One character that each version of Unicode was the first to assign, newest version first.
_FIRST_ASSIGNED = (
    ("18.0.0", "\U0003d000"),  # Seal
    ("17.0.0", "\U00011db0"),  # Tolong Siki
    ("16.0.0", "\U000105c0"),  # Todhri
    ("15.1.0", "\U0002ebf0"),  # CJK unified ideographs extension I
)


@cache
def unicode_version() -> str:
    """The Unicode version of the `regex` module, such as ``"17.0.0"``.

    The module has no attribute that says it, so this looks which characters it takes for assigned. A module newer than
    the table above is reported as the table's newest version (a test compares it with the module's own release notes
    and fails when a row is missing), one older than the table as ``"15.0.0 or older"``.
    """
    import regex

    for version, character in _FIRST_ASSIGNED:
        if regex.match(r"\P{Cn}", character):
            return version
    return "15.0.0 or older"
