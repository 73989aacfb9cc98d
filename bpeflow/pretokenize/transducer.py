"""From a DFA that finds one match to a transducer that finds all: it reads each character once.

Splitting a text is a sequence of *attempts*. An attempt starts where the last match ended. It follows the DFA until
the state is dead, and matches up to where the last match was seen; the next attempt starts there, so the characters
read since then are read again. If no match was seen, the first character is in a *gap*, and the next attempt starts
after it.

The transducer does this reading-again while it is built. Its configuration has everything that an attempt has to know:
the DFA's state, whether a gap is open before the attempt, whether a match was seen, and the *pending* characters,
which would be read again if the attempt ended now: those since the match, or, if there was none, since the first
character of the attempt. When an attempt ends, the pending characters and the one just read are followed from the
start state on. So a transition leads from one configuration to the next, and on the way boundaries turn out to be
before the character just read, or before the previous one. (A match is seen when the character after it is read. If it
is seen whichever that is, and ends a gap before the previous character, this is noted one character earlier, while that
boundary is near enough.) If a boundary is further back, or more than one character
is pending, the transition is *special*: the matcher finds that attempt's match with the DFA instead, and continues
after it in the first configuration or, if there was no match, after its first character in the configuration
`gap_start`.

*Why it is exact.* By induction over the characters read, the configuration describes the attempt that is under way
after them. A transition makes the steps of the definition above, in the same order, on characters that it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from bpeflow.pretokenize.automaton import DEAD, Dfa

#: Flags of a transition: a boundary is before the character just read, or before the previous one.
BOUNDARY, BOUNDARY_BEFORE_PREVIOUS = 1, 2
#: The attempt under way started at the character just read, or at the previous one. Only if the pattern leaves gaps.
STARTS, STARTS_AT_PREVIOUS = 4, 8
#: The boundary before the previous character ends a gap. (No boundary before the character just read does.)
ENDS_GAP = 16
#: The transition is special, and all else about it is undefined.
SPECIAL = 128

#: Properties of a configuration: a gap is open before the attempt; no attempt is under way.
IN_GAP, FRESH = 1, 2

#: Transitions of a transducer, at most, before equal configurations are joined. Published patterns have a few hundred.
_MAX_TRANSITIONS = 50_000

#: Work for joining equal configurations, in transitions.
_MAX_WORK = 1_000_000


class _Config(NamedTuple):
    """A configuration (see above); `pending` is None if more than one character is."""

    state: int = 0
    fresh: bool = True
    in_gap: bool = False
    matched: bool = False
    pending: tuple[int, ...] | None = ()


class _TooLargeError(Exception):
    """The transducer has too many transitions."""


class Transducer(NamedTuple):
    """A transducer. Configuration 0 is the start.

    Attributes:
        moves: for each configuration, and for each class and the end of the text, the next configuration.
        flags: likewise, the flags of the transition. At the end of the text, `BOUNDARY` says that a match ends there.
        info: `IN_GAP` and `FRESH` of each configuration.
        gap_start: the configuration after an attempt that failed; 0 if none ever fails.
    """

    moves: list[list[int]]
    flags: list[list[int]]
    info: list[int]
    gap_start: int


def make_transducer(dfa: Dfa) -> Transducer:
    """Return the transducer of a DFA with as few configurations as possible; an empty one if it is too large."""
    try:
        return _Builder(dfa).joined()
    except _TooLargeError:
        return Transducer([], [], [], 0)


class _Builder:
    """The transitions of all configurations that can be reached."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa
        self._configs: list[_Config] = []
        self._numbers: dict[_Config, int] = {}
        self._number(_Config())
        self._gaps = dfa.leaves_gaps()
        self._matches = [all(match for _, match in row) for row in dfa.table]  # states that always end a match
        self._gap_start = self._number(_Config(in_gap=True)) if self._gaps else 0
        self._flags: list[list[int]] = []
        self._moves: list[list[int]] = []
        while len(self._moves) < len(self._configs):
            if len(self._configs) * (dfa.end + 1) > _MAX_TRANSITIONS:
                raise _TooLargeError
            config = self._configs[len(self._moves)]
            row = [self._read(config, character) for character in range(dfa.end + 1)]
            self._flags.append([flags for flags, _ in row])
            self._moves.append([0 if after is None else self._number(after) for _, after in row])

    def _number(self, config: _Config) -> int:
        number = self._numbers.setdefault(config, len(self._configs))
        if number == len(self._configs):
            self._configs.append(config)
        return number

    def _read(self, config: _Config, character: int) -> tuple[int, _Config | None]:
        """Return the flags of a transition, and the next configuration, if there is one."""
        boundaries: set[int] = set()  # in characters before the one just read
        ends_gap = False
        start: int | None = None  # of the attempt under way, likewise
        unread = deque([(character, 0)])
        while unread:
            read, back = unread.popleft()
            after, match = self._dfa.table[config.state][read]
            if match:
                if config.in_gap:
                    if config.pending is None:
                        return SPECIAL, None
                    boundaries.add(back + len(config.pending) + 1)
                    ends_gap = True
                config = config._replace(in_gap=False, matched=True, pending=())
            if after != DEAD:
                if config.fresh:
                    start = back
                    pending: tuple[int, ...] | None = ()
                else:
                    pending = (read,) if config.pending == () else None
                config = config._replace(state=after, fresh=False, pending=pending)
                if config.in_gap and self._matches[after] and pending and back == 0:
                    boundaries.add(1)
                    ends_gap = True
                    config = config._replace(in_gap=False, matched=True, pending=())
            elif config.fresh:
                if read != self._dfa.end:
                    config = _Config(in_gap=True)
            elif config.pending is None:
                return SPECIAL, None
            else:
                if config.matched:
                    boundaries.add(back + len(config.pending))
                again = [(read, back), *((one, back + 1) for one in config.pending)]
                unread.extendleft(again)
                config = _Config(in_gap=not config.matched)
                start = None
        if max(boundaries, default=0) > 1 or (start or 0) > 1:
            return SPECIAL, None
        flags = BOUNDARY * (0 in boundaries) | BOUNDARY_BEFORE_PREVIOUS * (1 in boundaries) | ENDS_GAP * ends_gap
        if self._gaps:
            flags |= STARTS * (start == 0) | STARTS_AT_PREVIOUS * (start == 1)
        return flags, None if character == self._dfa.end else config

    def joined(self) -> Transducer:
        """Join configurations that no text distinguishes (Moore's algorithm)."""
        info = [IN_GAP * config.in_gap | FRESH * config.fresh for config in self._configs]
        blocks = _number_keys(zip(info, map(tuple, self._flags), strict=True))
        work = 0
        while True:
            after = [tuple([blocks[to] for to in row]) for row in self._moves]
            finer = _number_keys(zip(blocks, after, strict=True))
            if max(finer) == max(blocks):
                break
            blocks = finer
            work += len(blocks) * (self._dfa.end + 1)
            if work > _MAX_WORK:
                raise _TooLargeError
        firsts = [blocks.index(block) for block in range(max(blocks) + 1)]
        return Transducer(
            moves=[[blocks[to] for to in self._moves[first]] for first in firsts],
            flags=[self._flags[first] for first in firsts],
            info=[info[first] for first in firsts],
            gap_start=blocks[self._gap_start],
        )


def _number_keys(keys: Iterable[Hashable]) -> list[int]:
    """Number keys in the order of their first occurrence."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]
