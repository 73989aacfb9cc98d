r"""Limits for the `regex` module, because a pattern can come from a file of unknown origin.

Matching in `regex` can take exponential time: ``(?:a|a)*b|.`` doubles its work with each ``a`` of a text. Compiling is
dangerous, too: `regex` writes out the least number of each repetition, so ``(?:(?:ab){10000}){10000}`` takes gigabytes.
So a search has a time limit (`TimeLimit`), and a pattern a size limit (`check_size`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import TypeVar

from bpeflow._util.text import Pattern, short_repr, steps_of
from bpeflow.errors import PatternError, PatternTimeoutError

_Found = TypeVar("_Found")

# ---- time ----

#: The processor time for a text: one second, and one for each 200,000 characters. The slowest published pattern
#: (DeepSeek's, in three steps) needs a tenth of that. A higher rate would refuse slow patterns on slow machines, a
#: lower one would make a hostile pattern last longer on a long text.
_SECONDS, _CHARACTERS_PER_SECOND = 1.0, 200_000

#: A pattern that calls itself, as in ``(?R)`` and ``(?&name)``. `regex` keeps all calls in memory, 600 MB for each
#: second of ``(?R)?a``, so the length of the text does not extend the time.
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")


class TimeLimit:
    """The processor time that the searches of a pattern in a text may take together."""

    def __init__(self, pattern: Pattern, text: str) -> None:
        """Start the clock for a text, which is searched as a whole or in pieces."""
        self._pattern = pattern
        self._text = text
        self._recursive = any(map(_RECURSION.search, steps_of(pattern)))
        self.seconds = _SECONDS if self._recursive else _SECONDS + len(text) / _CHARACTERS_PER_SECOND
        self._end = time.thread_time() + self.seconds

    def run(self, search: Callable[..., _Found], text: str) -> _Found:
        """Return the result of a function of a compiled pattern for a text. Raises `PatternTimeoutError`."""
        # `regex` measures the time of all threads of the process. Where those of other threads made it give up, it
        # tries again and gets twice as long.
        timeout, late = self._end - time.thread_time(), self._end - self.seconds / 2
        while timeout > 0:
            try:
                found = search(text, timeout=timeout)
            except TimeoutError:  # noqa: PERF203 (once is usual)
                if time.thread_time() > late:
                    break
                timeout *= 2
            except MemoryError:  # of the search: `regex` also limits the memory for its own stack
                break
            else:
                if self._recursive and time.thread_time() > late:
                    break  # in a recursion, `regex` has given up without an error: then it finds no match
                return found
        raise PatternTimeoutError(
            f"the pattern {short_repr(self._pattern)} takes more than {self.seconds:.1f} s, or too much memory, on a "
            f"text of {len(self._text):,} characters that begins with {short_repr(self._text)}: it may match the same "
            "text in very many ways, as (a|a)*b and (a+)+b do; rewrite it, or do not use the file that it comes from"
        )


# ---- size ----

#: The largest size of a pattern that is compiled, in the units of `_size`. Published patterns have up to 10,000.
_MAX_SIZE = 100_000

#: The size of a repetition: a search can take time in proportion to the square of their number before it looks at the
#: clock. And of a character whose case is folded to several characters: with 2,000 of them, one step takes a minute.
_REPETITION, _FOLDED = 100, 200

#: The parts of a pattern: escape, set, beginning and end of a group, repetition, and comment or any other character.
_PARTS = re.compile(
    r"(?s)\\[pPN]\{[^{}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?"
    r"|(?P<comment>\(\?#[^)]*\)?)|(?P<open>\(\??)|(?P<close>\))|(?P<repetition>[*+?]|\{\s*0*(?P<least>\d{0,9})[^{}]*\})|."
)

#: The flags of full case folding, and of comments that begin with ``#``, in which brackets mean nothing.
_FOLDING, _VERBOSE = re.compile(r"\(\?\w*(?:f|V1)"), re.compile(r"\(\?\w*x")


def check_size(pattern: Pattern) -> None:
    """Raise `PatternError` if regular expressions are too large to be compiled."""
    if sum(map(_size, steps_of(pattern))) > _MAX_SIZE:
        raise PatternError(
            f"the pattern {short_repr(pattern)} is too large, because its repetitions are written out when it is "
            "compiled: shorten it, or repeat less often"
        )


def _size(pattern: str) -> int:
    """Return a bound on the work of compiling a pattern: its length, if each repetition is written out.

    >>> _size("abc"), _size("(?:ab){50}"), _size("(?:(?:ab){50}){50}")
    (3, 250, 12650)
    """
    weight = _FOLDED if _FOLDING.search(pattern) else 1
    if _VERBOSE.search(pattern):  # where a bracket may belong to a comment, any repetition may contain the others
        least = [max(int(number), 1) for number in re.findall(r"\{\s*0*(\d{1,9})", pattern)]
        return (len(pattern) * weight + _REPETITION * len(least)) * math.prod(least)
    groups = [0]  # the sizes of the groups that are open
    last = 0  # the size of the part before a repetition
    for part in _PARTS.finditer(pattern):
        if part["open"]:
            groups.append(0)
        elif part["repetition"]:
            times = max(int(part["least"] or 1), 1)
            groups[-1] += last * (times - 1) + _REPETITION
            last = last * times + _REPETITION
        else:
            last = groups.pop() if part["close"] and len(groups) > 1 else len(part[0]) * weight
            groups[-1] += last
    return sum(groups)
