"""Pre-tokenizers: splitting text by a pattern with the `regex` module, which defines what the pre-tokens are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from bpeflow._util.text import Pattern, UnmatchedPolicy, steps_of, unknown_name
from bpeflow.errors import ConfigError, PatternError, UnmatchedTextError
from bpeflow.pretokenize.limits import TimeLimit, check_size
from bpeflow.pretokenize.normalizer import Normalizer, load_normalizer
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, PUBLISHED_PATTERNS
from bpeflow.pretokenize.tables import CompiledPattern, UnsupportedPattern, known_tables, learn_tables, write_cached

if TYPE_CHECKING:
    import regex as regex_module

_CUSTOM = "custom"

#: The names of patterns.
_NAMES = (*NAMED_PATTERNS, *PUBLISHED_PATTERNS)

#: The most characters of unmatched text, and of the text on either side of it, that a message shows.
_SHOWN = 20


class Unmatched(NamedTuple):
    """A stretch of text that the pattern does not match.

    Attributes:
        start: its position in the text, in characters.
        example: the stretch and the text around it, for a message.
    """

    start: int
    example: str


@dataclass(eq=False, repr=False)
class Pretokenizer:
    r"""Splits text into pre-tokens by one or several regular expressions. Use `load_pretokenizer` to make one.

    Of several, as in a sequence of HuggingFace's ``Split``, each splits the pieces that the ones before have left, so a
    lookahead sees no further than the end of the piece. Pieces are matches and, with `unmatched` ``"isolate"``, the
    stretches between them. With ``"drop"`` each expression drops what it does not match. With ``"error"``, text is
    unmatched if none of the expressions matches it.

    >>> load_pretokenizer([r"\d", r"\w+"]).pretokens("a1b, c")
    ['a', '1', 'b', ', ', 'c']

    It is pickled as its source, with the tables of its automaton once they are known. The `regex` module compiles it on
    first use: most processes leave pre-tokens to the native scanner and never import that module.

    Attributes:
        name: the name of the pattern, or ``"custom"``.
        regex: the source of the regular expression, or of each.
        unmatched: what to do with text that the regular expression does not match. The named patterns match all text.
        normalizer: what callers apply to a text before they split it. It decides where a document may be cut.
    """

    name: str
    regex: Pattern
    unmatched: UnmatchedPolicy = "isolate"
    normalizer: Normalizer = Normalizer()  # noqa: RUF009 (it is immutable)

    @cached_property
    def compiled(self) -> tuple[regex_module.Pattern[str], ...]:
        """The compiled regular expressions. Raises `PatternError` if one is invalid."""
        return tuple(map(_compile, self.sources))

    @property
    def custom(self) -> bool:
        """Whether the pattern is not a named one."""
        return self.name == _CUSTOM

    @property
    def sources(self) -> tuple[str, ...]:
        """The regular expressions: one, or those of a sequence."""
        return steps_of(self.regex)

    def tables(self) -> CompiledPattern:
        """Return the tables of the pattern's automaton, compiled on first use. Raises `UnsupportedPattern`."""
        found = known_tables(self.sources)
        if found is None:
            from bpeflow.pretokenize.compiled import compile_pattern  # late, as it needs numpy

            try:
                found = compile_pattern(self.sources)
                write_cached(self.sources, found)
            except UnsupportedPattern as error:
                found = str(error)
            learn_tables(self.sources, found)
        if isinstance(found, str):
            raise UnsupportedPattern(found)
        return found

    def pretokens(self, text: str) -> list[str]:
        """Return the pre-tokens of `text` from left to right, none of them empty.

        These are the matches of the pattern. If a custom pattern does not match all text, each stretch between two
        matches, before the first and after the last is a pre-token, too, unless `unmatched` says otherwise.

        >>> load_pretokenizer("gpt2").pretokens("Hello, world's")
        ['Hello', ',', ' world', "'s"]
        >>> load_pretokenizer("[a-z]+").pretokens("Hello, world's")
        ['H', 'ello', ', ', 'world', "'", 's']
        >>> load_pretokenizer("[a-z]+", "drop").pretokens("Hello, world's")
        ['ello', 'world', 's']

        Raises:
            UnmatchedTextError: the pattern does not match all of `text`, and `unmatched` is ``"error"``.
            PatternTimeoutError: the pattern takes too long (see `limits`), as all methods that search for it can.
        """
        return self.split(text)[0]

    def split(self, text: str) -> tuple[list[str], list[str]]:
        """Return the pre-tokens of `text` as `pretokens` does, and the stretches that the pattern does not match."""
        if self._returns_matches:
            matches: list[str] = TimeLimit(self.regex, text).run(self.compiled[0].findall, text)
            if sum(map(len, matches)) == len(text):  # as is usual, and takes half the time
                return list(filter(None, matches)), []
            self._returns_matches = False  # a pattern that leaves gaps usually does so again
        pieces, unmatched = self._split_spans(text)
        if unmatched and self.unmatched == "error":
            raise UnmatchedTextError(self.describe(show_unmatched(text, *unmatched[0])))
        return [text[start:end] for start, end in pieces], [text[start:end] for start, end in unmatched]

    def find_unmatched(self, text: str) -> Unmatched | None:
        """Return the first stretch of `text` that the pattern does not match; None if it matches all text.

        >>> load_pretokenizer("[a-z]+").find_unmatched("hello, world")
        Unmatched(start=5, example="', ' in 'hello, world'")
        """
        unmatched = self._split_spans(text)[1]
        return show_unmatched(text, *unmatched[0]) if unmatched else None

    def find_unmatched_before_normalizing(self, text: str) -> Unmatched | None:
        """Return what `find_unmatched` does for the normalized text, with its position in `text`."""
        unmatched = self.find_unmatched(self.normalizer(text))
        if unmatched is None or not self.normalizer:
            return unmatched
        return unmatched._replace(start=self.normalizer.origins(text)[1][unmatched.start][0])

    def describe(self, unmatched: Unmatched, at: str = "") -> str:
        """Return the error message for unmatched text, which is `at` a place; by default at its character."""
        at = at or f"character {unmatched.start}"
        return (
            f"the pattern {self.regex!r} does not match {unmatched.example}, at {at}; "
            "extend the pattern, or use unmatched='isolate' to make pre-tokens of such text"
        )

    def finds_anything(self, text: str) -> bool:
        """Return whether the pattern (of several, any) matches at least one character of `text`."""
        if len(self.compiled) > 1 and self.unmatched == "drop":
            return bool(self._split_spans(text)[0])
        limit = TimeLimit(self.regex, text)
        # A step sees the whole text if those before it find nothing.
        return any(limit.run(partial(_finds_anything, step), text) for step in self.compiled)

    def match_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each match in `text` from left to right, including empty ones.

        If there are several expressions, return those of each pre-token.
        """
        if len(self.compiled) > 1:
            return self._split_spans(text)[0]
        return TimeLimit(self.regex, text).run(partial(_spans, self.compiled[0]), text)

    @cached_property
    def _returns_matches(self) -> bool:
        """Whether `findall` returns the pre-tokens: not for several expressions, groups, or ``(?r)``, from the end."""
        import regex

        first, *others = self.compiled
        return not others and not first.groups and not first.flags & regex.REVERSE

    def _split_spans(self, text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the start and end of each pre-token, and of each stretch of unmatched text."""
        pieces = [(0, len(text), False)] if text else []
        dropped = []
        limit = TimeLimit(self.regex, text)
        for step in self.compiled:
            before, pieces = pieces, []
            for start, end, matched in before:
                position = start
                spans = limit.run(partial(_spans, step), text[start:end])
                for first, last in [*spans, (end - start, end - start)]:
                    if position < start + first:
                        if self.unmatched == "drop":
                            dropped.append((position, start + first))
                        else:
                            pieces.append((position, start + first, matched))
                    if first < last:
                        pieces.append((start + first, start + last, True))
                    position = start + last
        unmatched = sorted(dropped) if self.unmatched == "drop" else [(s, e) for s, e, matched in pieces if not matched]
        return [(start, end) for start, end, _ in pieces], unmatched

    def __reduce__(self) -> tuple[Callable[..., Pretokenizer], tuple[Any, ...]]:
        source = self.regex if self.custom else self.name
        known = known_tables(self.sources) if self.custom else None
        return _load_pickled, (source, self.unmatched, self.normalizer.names, known)

    def __repr__(self) -> str:
        normalizer = f", {self.normalizer.names!r}" if self.normalizer else ""
        return f"load_pretokenizer({self.regex if self.custom else self.name!r}, {self.unmatched!r}{normalizer})"


def load_pretokenizer(
    pattern: str | Sequence[str], unmatched: UnmatchedPolicy = "isolate", normalizer: str | Iterable[str] = ()
) -> Pretokenizer:
    r"""Return the pre-tokenizer of a named pattern, which `patterns` or `published` has, or of a regular expression.

    >>> load_pretokenizer(r"\w+|\W").pretokens("one, two")
    ['one', ',', ' ', 'two']

    Args:
        pattern: the name or the regular expression; or several, each of which splits the pieces of the one before.
        unmatched: what to do with text that a regular expression does not match: ``"error"``, ``"isolate"`` or
            ``"drop"``.
        normalizer: the name of a normalizer that callers apply before splitting, or several in order.

    Raises:
        ConfigError: `unmatched` is none of the three, or a normalizer is unknown.
        PatternError: the regular expression is invalid or too large. Also, `pattern` is a single word that is not a
            name (`gtp2`, `r50k`): as a regular expression it would match only itself, which cannot be intended.
    """
    if unmatched not in get_args(UnmatchedPolicy):
        raise ConfigError(f"unmatched is {unmatched!r}; it must be one of {', '.join(get_args(UnmatchedPolicy))}")
    loaded = load_normalizer(normalizer)
    pattern = simplest_pattern(pattern)
    check_size(pattern)
    sources = tuple(map(_expression, steps_of(pattern)))
    name = next((named for named in NAMED_PATTERNS if named == pattern), _CUSTOM)
    pretokenizer = Pretokenizer(name, sources if len(sources) > 1 else sources[0], unmatched, loaded)
    if pretokenizer.custom and known_tables(pretokenizer.sources) is None:
        for source in pretokenizer.sources:
            _compile(source)  # raises now if it is invalid
    return pretokenizer


def _expression(pattern: str) -> str:
    """Return the regular expression of a name, or the expression itself, which may be invalid."""
    if pattern in NAMED_PATTERNS:
        return NAMED_PATTERNS[pattern]
    if re.fullmatch(r"<\|\w+\|>", pattern):
        raise PatternError(f"the pattern is {pattern!r}, a special token: give it in special_tokens")
    if re.fullmatch(r"[A-Za-z0-9_-]+", pattern):
        raise PatternError(unknown_name("pattern", pattern, _NAMES))
    return pattern


def _load_pickled(
    pattern: Pattern, unmatched: UnmatchedPolicy, normalizer: Iterable[str], known: CompiledPattern | str | None
) -> Pretokenizer:
    if known is not None:
        learn_tables(steps_of(pattern), known)
    return load_pretokenizer(pattern, unmatched, normalizer)


def simplest_pattern(pattern: str | Sequence[str]) -> Pattern:
    r"""Return a list as a tuple, one expression as a string, and the expressions of published patterns for their names.

    >>> simplest_pattern(["starcoder", r"\w+"])
    ('\\p{N}|\\P{N}+', 'gpt2', '\\w+')

    Raises:
        PatternError: `pattern` is neither a string nor a list of strings, or is empty.
    """
    given = [pattern] if isinstance(pattern, str) else pattern
    if not isinstance(given, Sequence) or not all(isinstance(step, str) for step in given):
        found = type(pattern).__name__
        raise PatternError(f"a pattern must be a str (a name or a regular expression) or a list of them, not {found}")
    if not given or not all(given):
        raise PatternError(f"the pattern is empty; use one of {', '.join(_NAMES)}, or a regular expression")
    steps = tuple(chain.from_iterable(steps_of(PUBLISHED_PATTERNS.get(step, step)) for step in given))
    return steps if len(steps) > 1 else steps[0]


def show_unmatched(text: str, start: int, end: int) -> Unmatched:
    """Return the unmatched stretch of `text` from `start` to `end`."""
    shown = text[start:end] if end - start <= _SHOWN else text[start : start + _SHOWN] + "…"
    around = text[max(start - _SHOWN, 0) : min(end, start + _SHOWN) + _SHOWN]
    return Unmatched(start, repr(shown) if shown == around else f"{shown!r} in {around!r}")


def _compile(source: str) -> regex_module.Pattern[str]:
    import regex

    try:
        return regex.compile(source)
    # ValueError and KeyError (in older versions): flags that exclude each other. RecursionError: thousands of nested
    # groups.
    except (regex.error, ValueError, KeyError, RecursionError) as error:
        raise PatternError(f"pattern {source!r} is an invalid regular expression: {error}") from error


def _spans(compiled: regex_module.Pattern[str], text: str, timeout: float) -> list[tuple[int, int]]:
    """Return the start and end of each match from left to right, although ``(?r)`` finds the last one first."""
    return sorted(match.span() for match in compiled.finditer(text, timeout=timeout))


def _finds_anything(compiled: regex_module.Pattern[str], text: str, timeout: float) -> bool:
    return any(match.end() > match.start() for match in compiled.finditer(text, timeout=timeout))


# Versions of Unicode, newest first, each with a character that it was the first to assign.
_FIRST_ASSIGNED = (
    ("18.0.0", "\U0003d000"),  # Seal
    ("17.0.0", "\U00011db0"),  # Tolong Siki
    ("16.0.0", "\U000105c0"),  # Todhri
    ("15.1.0", "\U0002ebf0"),  # CJK unified ideographs extension I
)


@cache
def unicode_version() -> str:
    """Return the Unicode version of the `regex` module, such as ``"17.0.0"``.

    The module has no attribute for it, so this tests which characters it considers assigned. A module newer than the
    table above is reported as the newest version in the table. (A test compares the result with the module's own
    release notes and fails when a row is missing.) A module older than the table is reported as ``"15.0.0 or older"``.
    """
    import regex

    for version, character in _FIRST_ASSIGNED:
        if regex.match(r"\P{Cn}", character):
            return version
    return "15.0.0 or older"
