r"""The syntax of patterns that can be compiled: a subset of the `regex` module's in which every atom is one character.

A pattern becomes a tree, or `UnsupportedPattern` says which construct only the `regex` module can match. The parser
accepts what it knows to mean the same there, and refuses everything else. It never interprets a set of characters
(``\p{Lu}``, ``[^\s\d]``, ``(?i:s)``): it keeps its source, and `automaton` asks the `regex` module what the set
contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from bpeflow.pretokenize.tables import UnsupportedPattern

#: Groups and lookarounds inside each other, at most. A pattern that people write has fewer than ten.
_MAX_DEPTH = 50


@dataclass(frozen=True)
class CharacterSet:
    """A set of characters, as a regular expression that matches one character."""

    source: str


@dataclass(frozen=True)
class Concatenation:
    """Items one after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """Alternatives, the preferred one first."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Repetition:
    """`least` to `most` (None: any number) times `body`: as often as possible first, unless it is lazy.

    A possessive one never gives back what it has matched.
    """

    body: Node
    least: int
    most: int | None
    kind: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class Lookahead:
    """A condition on the next character: it is in one of `sets`, or, if `end`, the text ends; or, negated, neither."""

    sets: tuple[CharacterSet, ...]
    end: bool
    negated: bool


@dataclass(frozen=True)
class Dollar:
    """``$``: the end of the text, or before a line end that ends the text. `before` is what precedes it directly."""

    before: Node | None


Node = CharacterSet | Concatenation | Alternation | Repetition | Lookahead | Dollar

END_OF_TEXT = Lookahead((), end=True, negated=False)


def parse(source: str) -> Node:
    """Return the tree of a valid pattern. Raises `UnsupportedPattern`."""
    return _Parser(source).parse()


def can_be_empty(node: Node) -> bool:
    """Return whether a node can match without taking a character."""
    match node:
        case CharacterSet():
            return False
        case Concatenation(items):
            return all(map(can_be_empty, items))
        case Alternation(branches):
            return any(map(can_be_empty, branches))
        case Repetition(body, least):
            return least == 0 or can_be_empty(body)
    return True  # a lookahead or $


# ---- the constructs


_ESCAPE = (
    r"\\(?:[sSdDwWnrtfvah]|[\x00-/:-@\[-`{-\x7f]|[pP](?:\{\^?[\w =:&-]+\}|[CLMNPSZ])"
    r"|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
)

# In VERSION0, where sets have no operations, a set ends at the first bracket that is neither escaped nor its first
# item.
_ITEM = rf"(?:(?!\[:)[^\]\\]|{_ESCAPE})"
_CHARACTER_SET = rf"(?s)[^\\\[(^$*+?{{|)]|{_ESCAPE}|\[(?:\^|(?!\^))(?:\]|{_ITEM}){_ITEM}*\]"

_QUANTIFIER = r"(?:([*+?])|\{(?=[0-9,])([0-9]*)(,?)([0-9]*)\})([?+]?)"
_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_KINDS: dict[str, Literal["greedy", "lazy", "possessive"]] = {"": "greedy", "?": "lazy", "+": "possessive"}

#: A group, and the flags that it sets and clears.
_GROUP = r"\((?![?*])|\(\?P?<[A-Za-z_]\w*>|\(\?([is]*)(?:-([is]+))?:"

# Beginnings of what the parser does not know, and its name. The first one counts.
_REFUSED = {
    r"\^": "the start of the text",
    r"[*+?{]": "a repetition of nothing",
    r"\[[^\]]*\[:": r"a POSIX class in a set; write \p{…}",
    r"\[": "a set of characters without an end, or with an escape that is not supported",
    r"\\[bBmM]": "a word border",
    r"\\A": "the start of the text",
    r"\\G": "the start of the search",
    r"\\K": "what is kept of the match",
    r"\\X": "a grapheme",
    r"\\R": "a line end of up to two characters",
    r"\\N": "a character by name; write the character itself",
    r"\\L": "a named list",
    r"\\g": "a back-reference",
    r"\\[0-9]": "a back-reference or an octal number",
    r"\\.": "an escape that is not supported",
    r"\(\?#": "a comment",
    r"\(\?\|": "a branch reset",
    r"\(\?<[=!]": "a lookbehind",
    r"\(\?P=": "a back-reference",
    r"\(\?(?:P>|&|R)": "a recursion",
    r"\(\?\(": "a conditional",
    r"\(\*": "a verb",
}


class _Parser:
    """A recursive descent through `_source`, of which everything before `_at` is parsed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        flags = ""
        while match := self._take(r"\(\?([is]+)\)"):
            flags += match[1]
        tree = self._alternation("".join(sorted({*flags})))
        if self._next():
            raise self._unsupported("a parenthesis that was not opened")
        return tree

    def _alternation(self, flags: str) -> Node:
        branches = [self._concatenation(flags)]
        while self._take(r"\|"):
            branches.append(self._concatenation(flags))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _concatenation(self, flags: str) -> Node:
        items: list[Node] = []
        while self._next() not in ("", "|", ")"):
            if self._take(r"\$"):
                items.append(Dollar(items[-1] if items else None))
            else:
                items.append(self._repetition(flags))
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _repetition(self, flags: str) -> Node:
        start = self._at
        body = self._atom(flags)
        match = self._take(_QUANTIFIER)
        if match is None:
            if self._next() == "{":
                raise self._unsupported(r"a brace without a number of repetitions; write \{ for a brace")
            return body
        sign, least, comma, most, suffix = match.groups()
        if sign:
            bounds = _SIGNS[sign]
        elif comma:
            bounds = int(least or 0), int(most) if most else None
        else:
            bounds = int(least), int(least)
        if isinstance(body, Lookahead):
            raise self._unsupported("a repetition of a lookahead", start)
        if suffix == "+" and not isinstance(body, CharacterSet):
            raise self._unsupported("a possessive repetition of more than one set of characters", start)
        if can_be_empty(body) and bounds != (0, 1):
            raise self._unsupported("a repetition of something that can be empty", start)
        return Repetition(body, *bounds, _KINDS[suffix])

    def _atom(self, flags: str) -> Node:
        start = self._at
        if match := self._take(_CHARACTER_SET):
            return CharacterSet(f"(?{flags}:{match[0]})" if flags else match[0])
        if self._take(r"\\Z"):
            return END_OF_TEXT
        if match := self._take(r"\(\?([=!])"):
            sets, end = self._next_character(self._inside(flags), start)
            return Lookahead(sets, end, negated=match[1] == "!")
        if self._take(r"\(\?>"):
            body = self._inside(flags)
            if isinstance(body, Repetition) and isinstance(body.body, CharacterSet) and body.kind != "lazy":
                return replace(body, kind="possessive")
            if isinstance(body, CharacterSet):
                return body
            raise self._unsupported("an atomic group of more than one set of characters", start)
        if match := self._take(_GROUP):
            on, off = match.groups("")
            return self._inside("".join(sorted({*flags, *on} - {*off})))
        for beginning, construct in _REFUSED.items():
            if match := self._take(beginning):
                name = f"`{match[0]}`, " if match[0][0] in r"\^" else ""
                raise self._unsupported(name + construct, start)
        raise self._unsupported(
            "a group of this kind, or flags other than i and s or after the start of the pattern", start
        )

    def _inside(self, flags: str) -> Node:
        """Parse to the end of a group, past its closing parenthesis."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._unsupported(f"more than {_MAX_DEPTH} groups inside each other")
        tree = self._alternation(flags)
        if not self._take(r"\)"):
            raise self._unsupported("a group without an end")
        self._depth -= 1
        return tree

    def _next_character(self, node: Node, start: int) -> tuple[tuple[CharacterSet, ...], bool]:
        """Return what a lookahead looks for: sets of characters, and whether the end of the text will do."""
        match node:
            case CharacterSet():
                return (node,), False
            case Repetition(CharacterSet() as body, 1):  # one is enough
                return (body,), False
            case Lookahead((), end=True, negated=False):
                return (), True
            case Alternation(branches):
                found = [self._next_character(branch, start) for branch in branches]
                return tuple(one for sets, _ in found for one in sets), any(end for _, end in found)
        raise self._unsupported("a lookahead at more than one character", start)

    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self, expression: str) -> re.Match[str] | None:
        match = re.compile(expression).match(self._source, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _unsupported(self, construct: str, at: int | None = None) -> UnsupportedPattern:
        start = self._at if at is None else at
        excerpt = self._source[start : start + 20]
        return UnsupportedPattern(f"it has {construct}, at character {start}: {excerpt!r}")
