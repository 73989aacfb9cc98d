"""Finding the safe cuts of a pattern in text, natively or in Python. `cuts` has the proof."""

from __future__ import annotations

from functools import lru_cache, partial

from bpeflow._util.native import address, load_library
from bpeflow.errors import NativeUnavailableError
from bpeflow.pretokenize.native import new_pattern, why_not_compiled
from bpeflow.pretokenize.patterns import Utf8
from bpeflow.pretokenize.regex import Pretokenizer
from bpeflow.pretokenize.tables import STRONG, UNSAFE, WEAK

#: Whether a position is a cut depends on the two characters around it: at most this many bytes on each side.
LOOK_BEHIND = LOOK_AHEAD = 4

#: `enum bpeflow_cut` of the header.
_LAST_CUT, _NORMALIZED, _LOWERCASED = 1, 2, 4


class NativeCutter:
    """Finds safe cuts. Positions count bytes from the start of a window, which is part of a document."""

    def __init__(self, pretokenizer: Pretokenizer) -> None:
        """Prepare a pattern that can be compiled. Raises `NativeUnavailableError`."""
        self._pattern = new_pattern("count", pretokenizer)
        self._find_cut = load_library("count").bpeflow_pattern_find_cut
        normalizer = pretokenizer.normalizer
        self._flags = _NORMALIZED * bool(normalizer) + _LOWERCASED * normalizer.lowers

    def find_cut(self, window: Utf8, start: int, *, last: bool = False) -> int | None:
        """Return the first (or last) position ``>= start`` at which a document that contains `window` may be cut.

        Whether a position is a cut depends on the `LOOK_BEHIND` bytes before it, which must be in the window unless the
        document begins there, and on the `LOOK_AHEAD` bytes from it on. If fewer than those are left in the window, a
        cut may be missed. The result is never 0 or ``len(window)``. It is None if there is no such position.
        """
        flags = self._flags | _LAST_CUT * last
        return self._find_cut(self._pattern, address(window), len(window), start, flags) or None


class PythonCutter:
    """Does in Python what `NativeCutter` does: the reference."""

    def __init__(self, pretokenizer: Pretokenizer) -> None:
        """Prepare the tables of a pattern that can be compiled."""
        self._steps = pretokenizer.tables()
        self._drops = pretokenizer.unmatched == "drop"
        self._normalizer = pretokenizer.normalizer
        self._is_safe = lru_cache(maxsize=1 << 14)(self._is_safe_pair)

    def find_cut(self, window: Utf8, start: int, *, last: bool = False) -> int | None:
        """Return the first (or last) cut from a position on."""
        positions = range(max(start, 1), len(window))
        return next(filter(partial(self._is_cut, window), reversed(positions) if last else positions), None)

    def _is_cut(self, window: Utf8, position: int) -> bool:
        before = bytes(window[max(position - LOOK_BEHIND, 0) : position]).decode(errors="surrogateescape")
        after = bytes(window[position : position + LOOK_AHEAD]).decode(errors="surrogateescape")
        return self._is_safe(before[-1], after[0])

    def _is_safe_pair(self, x: str, w: str) -> bool:
        if any("\ud800" <= one <= "\udfff" for one in (x, w)):  # a byte of an incomplete or invalid character
            return False
        if self._normalizer:
            if not (_is_stable(x) and _is_stable(w)) or "A" <= w.upper() <= "Z" or w in "<=>":
                return False
            x = x.lower() if self._normalizer.lowers else x
        for step in self._steps:
            kind = step.cuts[step.class_of(x) * step.classes + step.class_of(w)]
            if kind == STRONG or (kind == WEAK and self._drops):
                return True
            if kind == UNSAFE:
                return False
        return False


def _is_stable(character: str) -> bool:
    """Return whether a character is the same in all normalization forms, whatever is before it."""
    return character <= "\x7f" or "\u4e00" <= character <= "\u9fff"


Cutter = NativeCutter | PythonCutter


def load_cutter(pretokenizer: Pretokenizer) -> Cutter | None:
    """Return the cutter of a pattern; None if the pattern cannot be compiled, so that no cuts are known.

    >>> from bpeflow.pretokenize.regex import load_pretokenizer
    >>> load_cutter(load_pretokenizer("gpt2")).find_cut(b"one two three", 4)
    7
    """
    if why_not_compiled(pretokenizer) is not None:
        return None
    try:
        return NativeCutter(pretokenizer)
    except NativeUnavailableError:
        return PythonCutter(pretokenizer)
