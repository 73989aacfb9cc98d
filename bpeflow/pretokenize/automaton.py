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

from functools import cache, lru_cache
from time import thread_time
from typing import NamedTuple

import numpy as np

from bpeflow.pretokenize.syntax import (
    END_OF_TEXT,
    Alternation,
    CharacterSet,
    Concatenation,
    Dollar,
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


def _code_point(index: int) -> int:
    """Return the code point of the character at an index of `_all_characters`."""
    return index if index < _SURROGATES.start else index + len(_SURROGATES)


@lru_cache(maxsize=256)
def _runs(source: str) -> tuple[tuple[int, int], ...]:
    """Return the runs of characters that a set contains, as positions in `_all_characters`."""
    import regex

    characters, runs = _all_characters(), regex.compile(f"(?:{source})++")
    found: list[tuple[int, int]] = []
    begun = thread_time()
    for start in range(0, len(characters), _BLOCK):
        for match in runs.finditer(characters, start, start + _BLOCK):
            first, end = match.span()
            if found and found[-1][1] == first:
                first, _ = found.pop()
            found.append((first, end))
        _check_time(begun)
    return tuple(found)


def _check_time(begun: float) -> None:
    if thread_time() > begun + _MAX_SECONDS:
        raise UnsupportedPattern("its sets of characters are too large")


class Classes(NamedTuple):
    """The classes of characters of a pattern.

    Attributes:
        first: the first code point of each range, ascending from 0. A range ends where the next one begins.
        range_class: the class of each range.
        members: of each class, the numbers of the sets that contain it.
    """

    first: list[int]
    range_class: list[int]
    members: list[frozenset[int]]


def _divide(sets: list[CharacterSet]) -> Classes:
    """Divide all characters into classes. Surrogates get the class of the last character before them."""
    changes: dict[int, set[int]] = {0: set()}  # where the sets change that contain a character
    begun = thread_time()
    for number, characters in enumerate(sets):
        _check_time(begun)
        for run in _runs(characters.source):
            for index in run:
                changes.setdefault(index, set()).symmetric_difference_update({number})
    changes.pop(len(_all_characters()), None)
    classes = Classes([], [], [])
    known: dict[frozenset[int], int] = {}
    members: set[int] = set()
    for index in sorted(changes):
        members ^= changes[index]
        key = frozenset(members)
        number = known.setdefault(key, len(known))
        if number == len(classes.members):
            classes.members.append(key)
        if not classes.range_class or classes.range_class[-1] != number:
            classes.first.append(_code_point(index))
            classes.range_class.append(number)
    if len(known) > MAX_CLASSES:
        raise UnsupportedPattern(f"its sets divide the characters into more than {MAX_CLASSES} classes")
    return classes


# ---- the ordered NFA


class _Take(NamedTuple):
    """Take a character of a set."""

    set: int
    after: int


class _Split(NamedTuple):
    """Continue in two states, the preferred one first."""

    first: int
    second: int


class _Look(NamedTuple):
    """Continue if the next character is in one of the sets, or if `end` and the text ends; or, negated, if neither."""

    sets: frozenset[int]
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
        self.sets: list[CharacterSet] = []
        self.start = self._build(tree, _MATCH)

    def _add(self, state: _NfaState) -> int:
        if len(self.states) >= _MAX_NFA_STATES:
            raise UnsupportedPattern("it is too long, or its numbers of repetitions are too large")
        self.states.append(state)
        return len(self.states) - 1

    def _number(self, characters: CharacterSet) -> int:
        if characters not in self.sets:
            self.sets.append(characters)
        return self.sets.index(characters)

    def _build(self, node: Node, after: int) -> int:
        """Add the states of a node that continues in state `after`; return its first."""
        match node:
            case CharacterSet():
                return self._add(_Take(self._number(node), after))
            case Concatenation(items):
                for position in reversed(range(len(items))):
                    before = items[position - 1] if position else None
                    is_dollar = isinstance(items[position], Dollar)
                    after = self._dollar(before, after) if is_dollar else self._build(items[position], after)
                return after
            case Alternation(branches):
                starts = [self._build(branch, after) for branch in branches]
                start = starts.pop()
                while starts:
                    start = self._add(_Split(starts.pop(), start))
                return start
            case Lookahead(sets, end, negated):
                return self._add(_Look(frozenset(map(self._number, sets)), end, negated, after))
            case Repetition():
                return self._repetition(node, after)
        return self._dollar(None, after)

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
        match before:
            case Repetition(CharacterSet(source), _, None, kind) if kind == "possessive" or (
                kind == "greedy" and after == _MATCH
            ):
                if any(start <= ord("\n") < end for start, end in _runs(source)):
                    return self._build(END_OF_TEXT, after)
        raise UnsupportedPattern(
            r"it has `$`, which also matches before a line end at the end of the text; write \Z for the end of the text"
        )


# ---- the leftmost-first DFA


class Transition(NamedTuple):
    """What reading a character does: the state after it, and whether a match ends before it."""

    after: int
    match: bool


class Dfa:
    """A leftmost-first DFA, whose state 0 is the start.

    Attributes:
        classes: the classes of characters. `end` is one more, the end of the text.
        table: for each state, and for each class and `end`, a `Transition`. After `end`, the state is `DEAD`.
    """

    def __init__(self, source: str) -> None:
        """Compile one regular expression. Raises `UnsupportedPattern`."""
        tree = parse(source)
        if can_be_empty(tree):
            raise UnsupportedPattern("it can match the empty string")
        self._nfa = _Nfa(tree)
        self.classes = _divide(self._nfa.sets)
        self.end = len(self.classes.members)
        self._members = [*self.classes.members, frozenset[int]()]
        self._steps = 0
        self._threads: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._state((self._nfa.start,))
        self.table: list[list[Transition]] = []
        while len(self.table) < len(self._threads):
            threads = self._threads[len(self.table)]
            self.table.append([self._read(threads, character) for character in range(self.end + 1)])

    def leaves_gaps(self) -> bool:
        """Return whether an attempt can end without a match, so that there is text that the pattern does not match."""
        return any(map(self.can_fail, range(self.end)))

    def can_fail(self, character: int) -> bool:
        """Return whether an attempt that starts at a character of a class can end without a match."""
        found = {self.table[0][character].after}  # the states that it can be in while no match was seen
        unseen = [*found]
        while unseen:
            state = unseen.pop()
            if state == DEAD:
                return True
            for after in {after for after, match in self.table[state] if not match} - found:
                found.add(after)
                unseen.append(after)
        return False

    def _read(self, threads: tuple[int, ...], character: int) -> Transition:
        """Advance all threads by a character of a class, in order. Threads that do not accept it end."""
        members = self._members[character]
        seen: set[int] = set()
        taken: dict[int, None] = {}  # as an ordered set
        pending = [*reversed(threads)]
        while pending:
            number = pending.pop()
            if number in seen:  # a thread with a higher priority is there already
                continue
            seen.add(number)
            self._steps += 1
            match self._nfa.states[number]:
                case _Take(characters, after):
                    if characters in members:
                        taken[after] = None
                case _Split(first, second):
                    pending += (second, first)
                case _Look(sets, end, negated, after):
                    if negated != (not sets.isdisjoint(members) or (end and character == self.end)):
                        pending.append(after)
                case None:
                    return Transition(self._state(tuple(taken)), match=True)
        return Transition(self._state(tuple(taken)), match=False)

    def _state(self, threads: tuple[int, ...]) -> int:
        if self._steps > _MAX_STEPS:
            raise UnsupportedPattern("its automaton is too large")
        if not threads:
            return DEAD
        number = self._numbers.setdefault(threads, len(self._threads))
        if number == len(self._threads):
            if number >= _MAX_STATES:
                raise UnsupportedPattern(f"its automaton has more than {_MAX_STATES} states")
            self._threads.append(threads)
        return number
