"""Safe cuts by pairs of characters, with the tables of compiled patterns; in Python, and for normalized text.

*Normalized text.* With a normalizer ``n``, a place ``p`` between the characters ``x`` and ``w`` is a safe cut if
``n(A) + n(B) == n(A + B)``, and every pair of ``x'``, the last character of ``n(A)``, and ``w'``, the first of
``n(B)``, that can result is safe in the sense of `cuts`. A step of ``n`` is a normalization form of Unicode or the
lower case of each character. Two kinds of places are known to be of this kind, and each step leaves a place of its
kind.

1. *Each of* ``x`` *and* ``w`` *is ASCII or in U+4000–9FFF.* These are starters without decompositions, and none is
composed with a character before it. So the forms have a boundary at ``p``, and nothing after ``x`` changes it. Only
an ASCII ``w`` can be composed with marks after it, to one of the characters whose decomposition it begins. Lower case
changes single characters. 2. ``x`` *is neither ASCII nor white space;* ``w`` *is a space, a tab or a line end.* White
space is never composed or    reordered, so ``w' == w``. No other character has a decomposition that ends in white
space, so ``x'`` can be any    character that is not white space, and all their pairs with ``w`` must be safe.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache, cached_property, lru_cache
from itertools import pairwise, starmap

from bpeflow._util.text import UnmatchedPolicy
from bpeflow.pretokenize.compiled import CompiledPattern, Matcher
from bpeflow.pretokenize.cuts import STRONG, WEAK
from bpeflow.pretokenize.cutter import LOOK_BEHIND
from bpeflow.pretokenize.patterns import Utf8


class PairCutter:
    """The safe cuts of a compiled pattern. Implements `Cutter`."""

    def __init__(self, compiled: CompiledPattern, unmatched: UnmatchedPolicy, normalized: bool) -> None:
        """Prepare the tables of a pattern, for texts that are normalized after they are cut or not at all."""
        self._steps = [Matcher(step) for step in compiled.steps]
        self._drops = unmatched == "drop"
        self.is_safe = lru_cache(maxsize=1 << 14)(self._is_safe_normalized if normalized else self._is_safe)

    def find_cut(self, window: Utf8, start: int) -> int | None:
        """Return the first cut from a position on."""
        positions = range(max(start, 1), len(window))
        return next((position for position in positions if self._is_cut(window, position)), None)

    def find_last_cut(self, window: Utf8) -> int | None:
        """Return the last cut."""
        positions = range(len(window) - 1, 0, -1)
        return next((position for position in positions if self._is_cut(window, position)), None)

    def _is_cut(self, window: Utf8, position: int) -> bool:
        if window[position] & 0xC0 == 0x80:
            return False
        start = position - 1
        while start > 0 and position - start < LOOK_BEHIND and window[start] & 0xC0 == 0x80:
            start -= 1
        before, after = bytes(window[start:position]), bytes(window[position : position + _size(window[position])])
        try:
            x, w = before.decode(), after.decode()
        except UnicodeDecodeError:
            return False
        return len(x) == len(w) == 1 and self.is_safe(x, w)

    def _is_safe(self, x: str, w: str) -> bool:
        """Return whether a text may be cut between two characters."""
        for step in self._steps:
            kind = step.cuts[step.class_of(x)][step.class_of(w)]
            if kind == STRONG or (kind == WEAK and self._drops):
                return True
            if kind != WEAK:
                return False
        return False

    def _is_safe_normalized(self, x: str, w: str) -> bool:
        if _is_stable(x) and _is_stable(w):
            return all(self._is_safe(last, first) for last in {x, x.lower()} for first in _possible_firsts(w))
        return x > "\x7f" and not x.isspace() and w in self._safe_spaces

    @cached_property
    def _safe_spaces(self) -> list[str]:
        """The spaces, tabs and line ends before which a cut is safe after any character that is not white space."""
        starts = sorted({start for step in self._steps for start in step.first})
        ranges = starmap(range, pairwise([*starts, sys.maxunicode + 1]))
        examples = [next((chr(code) for code in codes if not chr(code).isspace()), None) for codes in ranges]
        return [w for w in "\t\n\r " if all(x is None or self._is_safe(x, w) for x in examples)]


def _size(lead: int) -> int:
    """Return the number of bytes of the character that begins with a byte."""
    return 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)


def _is_stable(character: str) -> bool:
    return character <= "\x7f" or "\u4000" <= character <= "\u9fff"


@cache
def _possible_firsts(w: str) -> frozenset[str]:
    """Return all characters that normalizing a text that begins with a stable character may make of this character."""
    found = {w, w.lower()}
    found |= {composed for composed in _composed_ascii() if unicodedata.normalize("NFD", composed)[0] in found}
    return frozenset(found | {character.lower()[0] for character in found})


@cache
def _composed_ascii() -> list[str]:
    """Return the characters whose decomposition begins with an ASCII character."""
    return [
        character for character in map(chr, range(0x80, 0x2300)) if unicodedata.normalize("NFD", character) < "\x80"
    ]
