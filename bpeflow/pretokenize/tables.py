"""The tables of compiled patterns, as data, and those that this process knows.

`compiled` makes them. This module needs neither `regex` nor numpy, so a worker that is sent the tables imports neither.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledStep:
    """The tables of one regular expression. Numbers are in native byte order, and tables are by rows.

    The end of the text is read like a character, in column number `classes`.

    Attributes:
        first: uint32[ranges], the first code point of each range, ascending from 0. Together they cover 0..0x10FFFF.
        range_class: uint8[ranges], the class of the code points of each range.
        classes: the number of classes of characters.
        next: uint16[states, classes + 1], the DFA: 2 * (1 + next state, or 0 if no match can follow) + 1 if a match
            ends before the character that is read. The start is state 0.
        moves: uint16[configurations, classes + 1], the transducer (see `transducer`): the next configuration; 0 after
            the end of the text and where flags are `SPECIAL`. Empty, as are `flags` and `info`, if it were too large.
        flags: uint8[configurations, classes + 1], the flags of each transition.
        info: uint8[configurations], `IN_GAP` and `FRESH`.
        gap_start: the configuration in which matching resumes after a failed attempt; 0 if there are no gaps.
        has_gaps: whether there is text that the expression does not match.
        cuts: uint8[classes, classes], whether a text may be cut between characters of two classes: `UNSAFE`, `WEAK` or
            `STRONG` (see `cuts`).
    """

    first: bytes
    range_class: bytes
    classes: int
    next: bytes
    moves: bytes
    flags: bytes
    info: bytes
    gap_start: int
    has_gaps: bool
    cuts: bytes


@dataclass(frozen=True)
class CompiledPattern:
    """The tables of a pattern: those of its regular expression, or of each, if it is a sequence."""

    steps: tuple[CompiledStep, ...]


#: Values of the table of cuts.
UNSAFE, WEAK, STRONG = 0, 1, 2

#: What this process knows of patterns, by their expressions: the tables, or why they cannot be compiled.
_KNOWN: dict[tuple[str, ...], CompiledPattern | str] = {}

#: Upper bound on their number. Each takes about 30 kB.
_MAX_KNOWN = 256


def known_tables(sources: tuple[str, ...]) -> CompiledPattern | str | None:
    """Return the tables of a pattern, or why it cannot be compiled; None if this process has not compiled it."""
    return _KNOWN.get(sources)


def learn_tables(sources: tuple[str, ...], tables: CompiledPattern | str) -> None:
    """Keep what another process knows of a pattern, or this one has found out."""
    while len(_KNOWN) >= _MAX_KNOWN:
        _KNOWN.pop(next(iter(_KNOWN)))
    _KNOWN[sources] = tables
