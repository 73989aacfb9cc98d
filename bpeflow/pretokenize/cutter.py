"""`Cutter`: finds the safe cuts of a pattern in text. `cuts` has the proof."""

from __future__ import annotations

import re
from typing import Protocol

from bpeflow.pretokenize import patterns
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, UnsupportedPattern, Utf8
from bpeflow.pretokenize.regex import Pretokenizer

#: Whether a position is a cut depends on at most this many bytes before it, and on as many from it on.
LOOK_BEHIND = LOOK_AHEAD = 4


class Cutter(Protocol):
    """Finds safe cuts. Positions count bytes from the start of a window, which is part of a document."""

    def find_cut(self, window: Utf8, start: int) -> int | None:
        """Return the first position ``>= start`` at which a document that contains `window` may be cut.

        Whether a position is a cut depends on the `LOOK_BEHIND` bytes before it, which must be in the window unless the
        document begins there, and on the `LOOK_AHEAD` bytes from it on. If fewer than those are left in the window, a
        cut may be missed. The result is never 0 or ``len(window)``. It is None if there is no such position.
        """
        ...

    def find_last_cut(self, window: Utf8) -> int | None:
        """Return the last position at which a document that contains `window` may be cut. Otherwise like `find_cut`."""
        ...


def load_cutter(pretokenizer: Pretokenizer) -> Cutter | None:
    """Return the cutter of a pattern; None if no cuts are known, as the pattern cannot be compiled.

    >>> from bpeflow.pretokenize.regex import load_pretokenizer
    >>> load_cutter(load_pretokenizer("gpt2")).find_cut(b"one two three", 4)
    7
    """
    if not pretokenizer.custom:
        return _NamedCutter(pretokenizer)
    from bpeflow.pretokenize.pair_cutter import PairCutter  # late: named patterns need none of it

    try:
        compiled = pretokenizer.automaton()
    except UnsupportedPattern:
        return None
    return PairCutter(compiled, pretokenizer.unmatched, bool(pretokenizer.normalizer))


class _NamedCutter:
    """The cuts of a named pattern, by its rules."""

    def __init__(self, pretokenizer: Pretokenizer) -> None:
        cut = NAMED_PATTERNS[pretokenizer.name].cut
        self._cut = re.compile(patterns.NORMALIZED[cut] if pretokenizer.normalizer else cut)

    def find_cut(self, window: Utf8, start: int) -> int | None:
        """Return the first cut from a position on."""
        return patterns.find_cut(self._cut, window, start)

    def find_last_cut(self, window: Utf8) -> int | None:
        """Return the last cut."""
        return patterns.find_last_cut(self._cut, window)
