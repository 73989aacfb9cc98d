r"""The syntax of patterns that can be compiled: a subset of the `regex` module's in which every atom is one character.

A pattern becomes a tree, or `UnsupportedPattern` says which construct only the `regex` module can match. The parser
accepts what it knows to mean the same there, and refuses everything else. It never interprets a set of characters
(``\p{Lu}``, ``[^\s\d]``, ``(?i:s)``): it keeps its source, and `automaton` asks the `regex` module what the set
contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    """``$``: the end of the text, or before a line end that ends the text."""


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


_FLAGS = re.compile(r"\(\?([is]+)\)")
_GROUP_WITH_FLAGS = re.compile(r"\(\?([is]*)(?:-([is]+))?:")
_GROUP = re.compile(r"\((?![?*])|\(\?P?<[A-Za-z_]\w*>")
_QUANTIFIER = re.compile(r"([*+?])|\{([0-9]+)\}|\{([0-9]*),([0-9]*)\}")
_PROPERTY = re.compile(r"\\[pP](?:\{\^?[\w =:&-]+\}|[CLMNPSZ])")
_CODE_POINT = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")

# In VERSION0, where sets have no operations, a set ends at the first bracket that is neither escaped nor its first
# item.
_SET = re.compile(r"\[\^?(?:[^\\]|\\.)(?:[^\]\\]|\\.)*\]", re.DOTALL)

# Letters that mean a character or a class of characters after a backslash.
_CHARACTER_ESCAPES = frozenset("sSdDwWnrtfvah")

# Beginnings of unsupported groups, and the reason; the longest first.
_REFUSED_GROUPS = {
    "(?#": "a comment",
    "(?|": "a branch reset",
    "(?<=": "a lookbehind",
    "(?<!": "a lookbehind",
    "(?P=": "a back-reference",
    "(?P>": "a recursion",
    "(?&": "a recursion",
    "(?R": "a recursion",
    "(?(": "a conditional",
    "(*": "a verb",
}
_REFUSED_ESCAPES = {
    "b": "a word border",
    "B": "a word border",
    "m": "a word border",
    "M": "a word border",
    "A": "the start of the text",
    "G": "the start of the search",
    "K": "what is kept of the match",
    "X": "a grapheme",
    "R": "a line end of up to two characters",
    "N": "a character by name; write the character itself",
    "L": "a named list",
    "g": "a back-reference",
} | dict.fromkeys("0123456789", "a back-reference or an octal number")


class _Parser:
    """A recursive descent through `_source`, of which everything before `_at` is parsed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        flags = ""
        while (match := self._match(_FLAGS)) is not None:
            flags += match[1]
        tree = self._alternation("".join(sorted(set(flags))))
        if self._at < len(self._source):
            raise self._unsupported("a parenthesis that was not opened")
        return tree

    def _alternation(self, flags: str) -> Node:
        branches = [self._concatenation(flags)]
        while self._take("|"):
            branches.append(self._concatenation(flags))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _concatenation(self, flags: str) -> Node:
        items = []
        while self._next() not in ("", "|", ")"):
            items.append(self._repetition(flags))
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _repetition(self, flags: str) -> Node:
        start = self._at
        body = self._atom(flags)
        match = self._match(_QUANTIFIER)
        if match is None:
            if self._next() == "{":
                raise self._unsupported(r"a brace without a number of repetitions; write \{ for a brace")
            return body
        sign, exact, least, most = match.groups()
        if sign is not None:
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif exact is not None:
            bounds = int(exact), int(exact)
        else:
            bounds = int(least or 0), int(most) if most else None
        kind: Literal["greedy", "lazy", "possessive"] = "greedy"
        if self._take("?"):
            kind = "lazy"
        elif self._take("+"):
            kind = "possessive"
        if isinstance(body, Lookahead | Dollar):
            raise self._unsupported("a repetition of a lookahead or `$`", start)
        if kind == "possessive" and not isinstance(body, CharacterSet):
            raise self._unsupported("a possessive repetition of more than one set of characters", start)
        if can_be_empty(body) and bounds != (0, 1):
            raise self._unsupported("a repetition of something that can be empty", start)
        return Repetition(body, *bounds, kind)

    def _atom(self, flags: str) -> Node:
        character = self._next()
        if character == "(":
            return self._group(flags)
        if character == "\\":
            return self._escape(flags)
        if character == "[":
            return self._set(flags)
        if character == "^":
            raise self._unsupported("`^`, the start of the text")
        if character in "*+?{":
            raise self._unsupported("a repetition of nothing")
        self._at += 1
        if character == "$":
            return Dollar()
        return _with_flags("." if character == "." else _literal(character), flags)

    def _escape(self, flags: str) -> Node:
        if match := self._match(_PROPERTY) or self._match(_CODE_POINT):
            return _with_flags(match[0], flags)
        escaped = self._source[self._at + 1 : self._at + 2]
        if escaped == "Z":
            self._at += 2
            return END_OF_TEXT
        if escaped in _REFUSED_ESCAPES:
            raise self._unsupported(f"`\\{escaped}`, {_REFUSED_ESCAPES[escaped]}")
        if escaped not in _CHARACTER_ESCAPES and (escaped.isalnum() or not escaped.isascii()):
            raise self._unsupported(f"the escape `\\{escaped}`")
        self._at += 2
        return _with_flags(f"\\{escaped}" if escaped in _CHARACTER_ESCAPES else _literal(escaped), flags)

    def _set(self, flags: str) -> Node:
        start = self._at
        match = self._match(_SET)
        if match is None:
            raise self._unsupported("a set of characters without an end")
        unescaped = re.sub(r"\\.", "", match[0], flags=re.DOTALL)
        if "[:" in unescaped[1:]:
            raise self._unsupported(r"a POSIX class in a set; write \p{…}", start)
        for escape in re.findall(r"\\(.)", match[0], re.DOTALL):
            if escape in _REFUSED_ESCAPES:
                raise self._unsupported(f"the escape `\\{escape}` in a set", start)
        return _with_flags(match[0], flags)

    def _group(self, flags: str) -> Node:
        start = self._at
        for opening, construct in _REFUSED_GROUPS.items():
            if self._source.startswith(opening, start):
                raise self._unsupported(construct)
        if self._take("(?=") or self._take("(?!"):
            negated = self._source[self._at - 1] == "!"
            sets, end = self._next_character(self._inside(flags), start)
            return Lookahead(sets, end, negated)
        if self._take("(?>"):
            body = self._inside(flags)
            if isinstance(body, Repetition) and isinstance(body.body, CharacterSet) and body.kind != "lazy":
                return Repetition(body.body, body.least, body.most, "possessive")
            if isinstance(body, CharacterSet):
                return body
            raise self._unsupported("an atomic group of more than one set of characters", start)
        if match := self._match(_GROUP_WITH_FLAGS):
            on, off = match.groups(default="")
            return self._inside("".join(sorted({*flags, *on} - {*off})))
        if self._match(_GROUP):
            return self._inside(flags)
        raise self._unsupported("a group of this kind, or flags other than i and s or after the start of the pattern")

    def _inside(self, flags: str) -> Node:
        """Parse to the end of a group, past its closing parenthesis."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._unsupported(f"more than {_MAX_DEPTH} groups inside each other")
        tree = self._alternation(flags)
        if not self._take(")"):
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

    def _take(self, text: str) -> bool:
        if not self._source.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        match = expression.match(self._source, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _unsupported(self, construct: str, at: int | None = None) -> UnsupportedPattern:
        start = self._at if at is None else at
        excerpt = self._source[start : start + 20]
        return UnsupportedPattern(f"it has {construct}, at character {start}: {excerpt!r}")


def _literal(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _with_flags(source: str, flags: str) -> CharacterSet:
    return CharacterSet(f"(?{flags}:{source})" if flags else source)
