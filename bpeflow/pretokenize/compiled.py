"""Compiled patterns: the tables by which the native library finds pre-tokens, as bytes that can be pickled.

`compile_pattern` makes them, and `tables` keeps them. `Matcher` states in Python how they are used.

The `regex` module stays the definition. Each pattern that is compiled is compared with it on a few thousand short
texts, of characters of all classes. If one is split differently, the pattern is left to the `regex` module, with a
warning.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bpeflow.pretokenize.automaton import DEAD, Dfa
from bpeflow.pretokenize.cuts import safe_pairs
from bpeflow.pretokenize.tables import CompiledPattern, CompiledStep, UnsupportedPattern
from bpeflow.pretokenize.transducer import (
    BOUNDARY,
    BOUNDARY_BEFORE_PREVIOUS,
    IN_GAP,
    SPECIAL,
    STARTS,
    STARTS_AT_PREVIOUS,
    make_transducer,
)

log = logging.getLogger(__name__)


def compile_pattern(sources: tuple[str, ...]) -> CompiledPattern:
    """Compile one or several regular expressions that the `regex` module accepts.

    Raises:
        UnsupportedPattern: only the `regex` module can match them. The message says why.
    """
    return tuple(_compile_one(sources, number) for number in range(len(sources)))


def _compile_one(sources: Sequence[str], number: int) -> CompiledStep:
    try:
        step = compile_step(sources[number])
        _compare(step, sources[number])
    except UnsupportedPattern as error:
        if len(sources) == 1:
            raise
        raise UnsupportedPattern(f"of expression {number + 1}, {error}") from error
    return step


def compile_step(source: str) -> CompiledStep:
    """Compile one regular expression, without the comparison. Raises `UnsupportedPattern`."""
    import regex

    allowed = regex.VERSION0 | regex.UNICODE | regex.IGNORECASE | regex.DOTALL
    if regex.compile(source).flags & ~allowed:
        raise UnsupportedPattern("it has flags other than i and s")
    dfa = Dfa(source)
    transducer = make_transducer(dfa)
    return CompiledStep(
        first=_pack(dfa.classes.first, np.uint32),
        range_class=_pack(dfa.classes.range_class, np.uint8),
        classes=dfa.end,
        next=_pack([[2 * (after + 1) + match for after, match in row] for row in dfa.table], np.uint16),
        moves=_pack(transducer.moves, np.uint16),
        flags=_pack(transducer.flags, np.uint8),
        info=_pack(transducer.info, np.uint8),
        gap_start=transducer.gap_start,
        has_gaps=dfa.leaves_gaps(),
        cuts=_pack(safe_pairs(dfa), np.uint8),
    )


def _pack(numbers: Any, dtype: DTypeLike) -> bytes:
    return np.array(numbers, dtype).tobytes()


# ---- the matcher, as a specification


class Matcher:
    """Finds the matches of one step in texts, slowly, in the two ways in which native code does."""

    def __init__(self, step: CompiledStep) -> None:
        """Unpack the tables of a step."""
        width = step.classes + 1
        self.step = step
        self.next: list[list[int]] = np.frombuffer(step.next, np.uint16).reshape(-1, width).tolist()
        self._moves: list[list[int]] = np.frombuffer(step.moves, np.uint16).reshape(-1, width).tolist()
        self._flags: list[list[int]] = np.frombuffer(step.flags, np.uint8).reshape(-1, width).tolist()

    def match_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the start and the end of each match, found one at a time by the DFA."""
        read = self._read(text)
        spans, position = [], 0
        while position < len(text):
            end = self._match_end(read, position)
            if end is not None:
                spans.append((position, end))
            position = position + 1 if end is None else end
        return spans

    def boundaries(self, text: str) -> list[int]:
        """Return the end of each match and of each gap, found by the transducer."""
        read = self._read(text)
        found: list[int] = []
        config = position = start = 0
        while True:
            flags = self._flags[config][read[position]]
            if flags & SPECIAL:
                end = self._match_end(read, start)
                if end is None:
                    start, config = start + 1, self.step.gap_start
                else:
                    if self.step.info[config] & IN_GAP:
                        found.append(start)
                    found.append(end)
                    start, config = end, 0
                position = start
                continue
            if flags & BOUNDARY_BEFORE_PREVIOUS:
                found.append(position - 1)
            if flags & BOUNDARY:
                found.append(position)
            if position == len(text):
                break
            if flags & STARTS:
                start = position
            elif flags & STARTS_AT_PREVIOUS:
                start = position - 1
            elif not self.step.has_gaps and found:
                start = found[-1]
            config = self._moves[config][read[position]]
            position += 1
        if text and found[-1:] != [len(text)]:  # it ends in a gap
            found.append(len(text))
        return found

    def _read(self, text: str) -> list[int]:
        return [*map(self.step.class_of, text), self.step.classes]

    def _match_end(self, read: Sequence[int], position: int) -> int | None:
        """Return the end of the match that starts at a position; None if there is none."""
        state, found = 0, None
        while state != DEAD:
            after = self.next[state][read[position]]
            if after & 1:
                found = position
            state = (after >> 1) - 1
            position += 1
        return found


# ---- the comparison with the `regex` module


#: Texts of two characters, and longer ones, with which a pattern is compared.
_PAIRS, _LONGER = 1000, 1500

#: CPU seconds after which the comparison ends, as patterns can be exponentially slow in the `regex` module.
_MAX_SECONDS = 1.0


def _compare(step: CompiledStep, source: str) -> None:
    """Raise `UnsupportedPattern`, and warn, if `regex` and the tables split a text differently."""
    import regex

    pattern = regex.compile(source)
    matcher = Matcher(step)
    begun = thread_time()
    for text in _texts(matcher):
        if thread_time() > begun + _MAX_SECONDS:
            break
        try:
            expected = [match.span() for match in pattern.finditer(text, timeout=_MAX_SECONDS)]
        except TimeoutError:
            break
        boundaries = sorted({*(end for span in expected for end in span), *([len(text)] if text else [])} - {0})
        if matcher.match_spans(text) != expected or (step.moves and matcher.boundaries(text) != boundaries):
            log.warning(
                "the pattern %r is not compiled, because it would split %a differently from the regex module; this is "
                "an error in bpeflow: please report it. Results are right, as the regex module is used instead",
                source,
                text,
            )
            raise UnsupportedPattern("its automaton differs from the regex module, which is an error in bpeflow")


def _texts(matcher: Matcher) -> Iterator[str]:
    """Yield texts of characters of all classes: each, pairs, and random walks through the automaton."""
    chance = random.Random(33)  # noqa: S311 (the same texts each time)
    members = _members(matcher, chance)
    classes = range(matcher.step.classes)

    def text(*read: int) -> str:
        return "".join(chance.choice(members[one]) for one in read)

    for one in classes:
        yield text(one)
    pairs = [(x, w) for x in classes for w in classes]
    for x, w in chance.sample(pairs, min(len(pairs), _PAIRS)):
        yield text(x, w)
    alive = [[one for one in classes if row[one] > 1] for row in matcher.next]
    for _ in range(_LONGER):
        read: list[int] = []
        state = 0
        for _ in range(chance.randrange(3, 12)):
            goes_on = alive[state] if chance.random() < 0.8 else []
            read.append(chance.choice(goes_on or classes))
            state = max((matcher.next[state][read[-1]] >> 1) - 1, 0)
        yield text(*read)


def _members(matcher: Matcher, chance: random.Random) -> list[list[str]]:
    """Return for each class some of its characters, at the ends of ranges."""
    ranges: list[list[str]] = [[] for _ in range(matcher.step.classes)]
    for number, (first, after) in enumerate(pairwise([*matcher.step.ranges, 0x110000])):
        ends = {first, after - 1}
        ranges[matcher.step.range_class[number]] += [chr(end) for end in ends if not 0xD800 <= end < 0xE000]
    return [chance.sample(ends, min(len(ends), 8)) for ends in ranges]
