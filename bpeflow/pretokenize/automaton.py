r"""From a pattern's tree to its matcher: classes of characters, an ordered NFA, and a leftmost-first DFA.

Matching means what backtracking in the `regex` module means: of the alternatives, the first that leads to a match. So
the threads of the *NFA* are ordered, and a state of the *DFA* is the list of its threads in order of priority, as in
RE2 and in Rust's `regex-automata`. A thread that reaches the end of the pattern ends all threads after it in the list;
the earlier ones continue, and if one of them reaches the end later, that match replaces the earlier one.

The DFA reads one character more than a match has. When it reads ``c`` and a thread reaches the end of the pattern
without taking ``c``, a match ends *before* ``c``. This makes conditions on the next character exact, and all that a
lookahead costs. The end of the text is read like a character, of the class *end*.

Characters that belong to the same sets of the pattern form a *class*. The `regex` module says which characters a set
contains, for every code point.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from time import thread_time
from typing import NamedTuple

import numpy as np

from bpeflow.pretokenize.syntax import (
    END_OF_TEXT,
    Alternation,
    CharacterSet,
    Concatenation,
    Lookahead,
    Node,
    Repetition,
    can_be_empty,
    parse,
)
from bpeflow.pretokenize.tables import UnsupportedPattern

#: At most this many classes of characters, so that a class and 128 more fit a byte.
MAX_CLASSES = 120

# Limits that keep the pattern of a tokenizer file from taking memory and time. No published pattern has 40 states.
_MAX_NFA_STATES = 10_000
_MAX_STATES = 3_000

#: Steps of the construction of a DFA; a million take less than a second.
_MAX_STEPS = 1_000_000

#: CPU time in seconds for the questions about sets. Those of a published pattern take at most 0.2 s together.
_MAX_SECONDS = 1

#: The state after the last thread has died.
DEAD = -1


# ---- characters


_SURROGATES = range(0xD800, 0xE000)

#: Characters that are asked about together, between two looks at the clock.
_BLOCK = 1 << 15


@cache
def _all_characters() -> str:
    """Return all characters in order. Surrogates are not among them, as no text in UTF-8 has any."""
    characters = np.delete(np.arange(0x110000, dtype="<u4"), _SURROGATES)
    return characters.tobytes().decode("utf-32-le")


@lru_cache(maxsize=256)
def _edges(source: str) -> tuple[int, ...]:
    """Return where the characters of a set begin and end, in turn, as positions in `_all_characters`.

    Where two blocks meet, a run that continues ends and begins.
    """
    import regex

    characters, runs = _all_characters(), regex.compile(f"(?:{source})++")
    edges: list[int] = []
    begun = thread_time()
    for start in range(0, len(characters), _BLOCK):
        for match in runs.finditer(characters, start, start + _BLOCK):
            edges += match.span()
        _check_time(begun)
    return tuple(edges)


def _check_time(begun: float) -> None:
    if thread_time() > begun + _MAX_SECONDS:
        raise UnsupportedPattern("its sets of characters are too large")


def _divide(sets: Iterable[str]) -> tuple[list[int], list[int], list[int]]:
    """Divide all characters into classes. Surrogates get the class of the last character before them.

    Return `first` and `range_class` of `Dfa`, and of each class the sets that contain it: bit n is that of set n.
    """
    changes = {0: 0}  # where the sets change that contain a character, as bits
    begun = thread_time()
    for number, source in enumerate(sets):
        for edge in _edges(source):
            changes[edge] = changes.get(edge, 0) ^ 1 << number
        _check_time(begun)
    changes.pop(len(_all_characters()), None)
    first: list[int] = []
    range_class: list[int] = []
    known: dict[int, int] = {}
    members = 0
    for edge in sorted(changes):
        members ^= changes[edge]
        number = known.setdefault(members, len(known))
        if range_class[-1:] != [number]:
            first.append(edge if edge < _SURROGATES.start else edge + len(_SURROGATES))
            range_class.append(number)
    if len(known) > MAX_CLASSES:
        raise UnsupportedPattern(f"its sets divide the characters into more than {MAX_CLASSES} classes")
    return first, range_class, [*known]


# ---- the ordered NFA


class _Take(NamedTuple):
    """Take a character of a set."""

    set: int  # its bit
    after: int


class _Split(NamedTuple):
    """Continue in two states, the preferred one first."""

    first: int
    second: int


class _Look(NamedTuple):
    """Continue if the next character is in one of the sets, or if `end` and the text ends; or, negated, if neither."""

    sets: int  # as bits
    end: bool
    negated: bool
    after: int


_NfaState = _Take | _Split | _Look | None

#: The NFA's state at the end of the pattern.
_MATCH = 0


class _Nfa:
    """The ordered NFA of a tree, built from its end to its start."""

    def __init__(self, tree: Node) -> None:
        self.states: list[_NfaState] = [None]
        self.sets: dict[str, int] = {}  # the number of each
        self.start = self._build(tree, _MATCH)

    def _add(self, state: _NfaState) -> int:
        if len(self.states) >= _MAX_NFA_STATES:
            raise UnsupportedPattern("it is too long, or its numbers of repetitions are too large")
        self.states.append(state)
        return len(self.states) - 1

    def _bit(self, characters: CharacterSet) -> int:
        return 1 << self.sets.setdefault(characters.source, len(self.sets))

    def _build(self, node: Node, after: int) -> int:
        """Add the states of a node that continues in state `after`; return its first."""
        match node:
            case CharacterSet():
                return self._add(_Take(self._bit(node), after))
            case Concatenation(items):
                for item in reversed(items):
                    after = self._build(item, after)
                return after
            case Alternation(branches):
                starts = [self._build(branch, after) for branch in branches]
                start = starts.pop()
                while starts:
                    start = self._add(_Split(starts.pop(), start))
                return start
            case Lookahead(sets, end, negated):
                return self._add(_Look(sum({*map(self._bit, sets)}), end, negated, after))
            case Repetition():
                return self._repetition(node, after)
        return self._dollar(node.before, after)

    def _repetition(self, node: Repetition, after: int) -> int:
        stop = after
        if node.kind == "possessive" and isinstance(node.body, CharacterSet):
            # ``X++`` is ``X+(?!X)``: it stops only where no X follows, or after `most`.
            stop = self._build(Lookahead((node.body,), end=False, negated=True), after)

        def choice(again: int) -> _Split:
            return _Split(stop, again) if node.kind == "lazy" else _Split(again, stop)

        start = after
        if node.most is None:
            start = self._add(None)
            self.states[start] = choice(self._build(node.body, start))
        else:
            for _ in range(node.most - node.least):
                start = self._add(choice(self._build(node.body, start)))
        for _ in range(node.least):
            start = self._build(node.body, start)
        return start

    def _dollar(self, before: Node | None, after: int) -> int:
        r"""Add ``$`` where it means ``\Z``, as it does in ``\s++$`` and at the end of a pattern in ``\s+$``.

        It also matches before a line end that ends the text. A possessive repetition of a set that contains line ends
        has taken that line end. A greedy one gives it back only if what follows fails, which nothing does at the end.
        """
        import regex

        match before:
            case Repetition(CharacterSet(source), _, None, kind) if regex.match(source, "\n"):
                if kind == "possessive" or (kind == "greedy" and after == _MATCH):
                    return self._build(END_OF_TEXT, after)
        raise UnsupportedPattern(
            r"it has `$`, which also matches before a line end at the end of the text; write \Z for the end of the text"
        )


# ---- the leftmost-first DFA


class Dfa:
    """A leftmost-first DFA, whose state 0 is the start.

    Attributes:
        first: the first code point of each range of characters of one class, ascending from 0.
        range_class: the class of each range.
        end: the number of classes, and the class of the end of the text.
        table: for each state and class, the state after reading such a character, and whether a match ends before it.
            After the end of the text, the state is `DEAD`.
        after, match: the same as arrays.
        can_fail: for each class, whether an attempt that starts at such a character can end without a match.
    """

    def __init__(self, source: str) -> None:
        """Compile one regular expression. Raises `UnsupportedPattern`."""
        tree = parse(source)
        if can_be_empty(tree):
            raise UnsupportedPattern("it can match the empty string")
        self._nfa = _Nfa(tree)
        self.first, self.range_class, classes = _divide(self._nfa.sets)
        self.end = len(classes)
        self._steps = 0
        self._threads: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._state((self._nfa.start,))
        self.table: list[list[tuple[int, bool]]] = []
        for threads in self._threads:  # which become more
            self.table.append([self._read(threads, members) for members in (*classes, None)])
        self.after, match = np.moveaxis(np.array(self.table), 2, 0)
        self.match = match.astype(bool)
        fails = np.zeros(len(self.table) + 1, bool)  # of each state and, in the last place, of `DEAD`
        fails[DEAD] = True
        while (more := (fails[self.after] & ~self.match).any(axis=1) & ~fails[:DEAD]).any():
            fails[:DEAD] |= more
        self.can_fail = fails[self.after[0, :-1]]

    def _read(self, threads: tuple[int, ...], members: int | None) -> tuple[int, bool]:
        """Advance all threads by a character of a class, in order. Threads that do not accept it end.

        `members` is that of the class; None for the end of the text.
        """
        sets = members or 0
        seen: set[int] = set()
        taken: dict[int, None] = {}  # as an ordered set
        pending = [*reversed(threads)]
        matched = False
        while pending and not matched:
            number = pending.pop()
            if number in seen:  # a thread with a higher priority is there already
                continue
            seen.add(number)
            self._steps += 1
            match self._nfa.states[number]:
                case _Take(characters, after):
                    if characters & sets:
                        taken[after] = None
                case _Split(first, second):
                    pending += (second, first)
                case _Look(wanted, end, negated, after):
                    if negated != bool(wanted & sets or (end and members is None)):
                        pending.append(after)
                case None:
                    matched = True
        return self._state(tuple(taken)), matched

    def _state(self, threads: tuple[int, ...]) -> int:
        if not threads:
            return DEAD
        number = self._numbers.setdefault(threads, len(self._threads))
        if number == len(self._threads):
            self._threads.append(threads)
        if self._steps > _MAX_STEPS or number >= _MAX_STATES:
            raise UnsupportedPattern("its automaton is too large")
        return number
