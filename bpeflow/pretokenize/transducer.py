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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class Transducer(NamedTuple):
    """A transducer. Configuration 0 is the start.

    Attributes:
        moves: for each configuration, and for each class and the end of the text, the next configuration; 0 after the
            end of the text and a special transition.
        flags: likewise, the flags of the transition. At the end of the text, `BOUNDARY` says that a match ends there.
        info: `IN_GAP` and `FRESH` of each configuration.
        gap_start: the configuration after an attempt that failed; 0 if none ever fails.
    """

    moves: NDArray[np.intp]
    flags: NDArray[np.intp]
    info: NDArray[np.intp]
    gap_start: int


_NOTHING = np.zeros(0, np.intp)
_TOO_LARGE = Transducer(_NOTHING, _NOTHING, _NOTHING, gap_start=0)


def make_transducer(dfa: Dfa) -> Transducer:
    """Return the transducer of a DFA with as few configurations as possible; an empty one if it is too large."""
    gaps = bool(dfa.can_fail.any())
    configs = [_Config(), _Config(in_gap=True)] if gaps else [_Config()]
    numbers = {config: number for number, config in enumerate(configs)}
    always_matches = dfa.match.all(axis=1).tolist()
    moves, flags = [], []
    for config in configs:  # which become more
        row = [_read(dfa, always_matches, config, character) for character in range(dfa.end + 1)]
        for _, after in row:
            if after not in numbers:
                numbers[after] = len(configs)
                configs.append(after)
        moves.append([numbers[after] for _, after in row])
        flags.append([of if gaps else of & ~(STARTS | STARTS_AT_PREVIOUS) for of, _ in row])
        if len(configs) * len(row) > _MAX_TRANSITIONS:
            return _TOO_LARGE
    info = [IN_GAP * config.in_gap | FRESH * config.fresh for config in configs]
    return _join(Transducer(np.array(moves), np.array(flags), np.array(info), gap_start=int(gaps)))


def _read(dfa: Dfa, always_matches: list[bool], config: _Config, character: int) -> tuple[int, _Config]:
    """Return the flags of a transition, and the next configuration."""
    state, fresh, in_gap, matched, pending = config
    boundaries: set[int] = set()  # in characters before the one just read
    ends_gap = False
    start = -1  # of the attempt that begins in this transition, likewise
    unread = deque([(character, 0)])
    while unread:
        read, back = unread.popleft()
        after, match = dfa.table[state][read]
        if match:
            if in_gap:
                if pending is None:
                    return SPECIAL, _Config()
                boundaries.add(back + len(pending) + 1)
                ends_gap = True
            in_gap, matched, pending = False, True, ()
        if after != DEAD:
            if fresh:
                start, pending = back, ()
            else:
                pending = (read,) if pending == () else None
            state, fresh = after, False
            if in_gap and always_matches[after] and pending and back == 0:
                boundaries.add(1)
                ends_gap = True
                in_gap, matched, pending = False, True, ()
        elif fresh:
            in_gap = True
        elif pending is None:
            return SPECIAL, _Config()
        else:
            if matched:
                boundaries.add(back + len(pending))
            unread.extendleft([(read, back), *((one, back + 1) for one in pending)])
            state, fresh, in_gap, matched, pending = _Config(in_gap=not matched)
            start = -1
    if max(*boundaries, start, 0) > 1:
        return SPECIAL, _Config()
    flags = BOUNDARY * (0 in boundaries) | BOUNDARY_BEFORE_PREVIOUS * (1 in boundaries) | ENDS_GAP * ends_gap
    flags |= STARTS * (start == 0) | STARTS_AT_PREVIOUS * (start == 1)
    return flags, _Config() if character == dfa.end else _Config(state, fresh, in_gap, matched, pending)


def _join(made: Transducer) -> Transducer:
    """Join configurations that no text distinguishes (Moore's algorithm)."""
    blocks = _number_rows(made.info, made.flags)
    for _ in range(_MAX_WORK // made.moves.size + 1):
        finer = _number_rows(blocks, blocks[made.moves])
        if finer.max() == blocks.max():
            firsts = np.unique(blocks, return_index=True)[1]
            return Transducer(blocks[made.moves[firsts]], made.flags[firsts], made.info[firsts], blocks[made.gap_start])
        blocks = finer
    return _TOO_LARGE


def _number_rows(first: NDArray[np.intp], others: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number rows, given their first column and the others, in the order of their first occurrence."""
    known: dict[tuple[int, ...], int] = {}
    return np.array([known.setdefault(tuple(row), len(known)) for row in np.column_stack([first, others]).tolist()])
