"""Compiling patterns: from regular expressions to the tables by which the native library finds pre-tokens.

`tables` keeps them. The `regex` module stays the definition. What the native library finds by the tables is compared
with it on a few thousand short texts, of characters of all classes. If one is split differently, the pattern is left to
the `regex` module, with a warning.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from ctypes import byref, c_uint64
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from bpeflow._util.native import load_library
from bpeflow.errors import NativeUnavailableError
from bpeflow.pretokenize.automaton import Dfa
from bpeflow.pretokenize.cuts import safe_pairs
from bpeflow.pretokenize.tables import CompiledPattern, CompiledStep, UnsupportedPattern, new_compiled_pattern
from bpeflow.pretokenize.transducer import make_transducer

log = logging.getLogger(__name__)


def compile_pattern(sources: tuple[str, ...]) -> CompiledPattern:
    """Compile one or several regular expressions that the `regex` module accepts.

    Raises:
        UnsupportedPattern: only the `regex` module can match them. The message says why.
    """
    return tuple(_compile_one(sources, number) for number in range(len(sources)))


def _compile_one(sources: tuple[str, ...], number: int) -> CompiledStep:
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
        first=_pack(dfa.first, np.uint32),
        range_class=_pack(dfa.range_class, np.uint8),
        classes=dfa.end,
        next=_pack(2 * (dfa.after + 1) + dfa.match, np.uint16),
        moves=_pack(transducer.moves, np.uint16),
        flags=_pack(transducer.flags, np.uint8),
        info=_pack(transducer.info, np.uint8),
        gap_start=int(transducer.gap_start),
        has_gaps=bool(dfa.can_fail.any()),
        cuts=_pack(safe_pairs(dfa), np.uint8),
    )


def _pack(numbers: Any, dtype: DTypeLike) -> bytes:
    return np.array(numbers, dtype).tobytes()


# ---- the comparison with the `regex` module


#: Texts with which a pattern is compared, and the most characters of one.
_TEXTS, _MOST = 2500, 12

#: CPU seconds after which the comparison ends, as patterns can be exponentially slow in the `regex` module.
_MAX_SECONDS = 1.0


def _compare(step: CompiledStep, source: str) -> None:
    """Raise `UnsupportedPattern`, and warn, if `regex` and the native library split a text differently."""
    import regex

    try:
        split = load_library("count").bpeflow_pattern_split
    except NativeUnavailableError:  # then the tables only say where documents may be cut
        return
    pattern, spans, count = regex.compile(source), (c_uint64 * (2 * 4 * _MOST))(), c_uint64()
    by_automaton = replace(step, moves=b"", flags=b"", info=b"")
    ways = [new_compiled_pattern("count", (one,), "drop") for one in (step, by_automaton)]
    begun = thread_time()
    for text in _texts(step):
        places = [0, *accumulate(len(character.encode()) for character in text)]
        try:
            matches = [match.span() for match in pattern.finditer(text, timeout=_MAX_SECONDS)]
        except TimeoutError:
            break
        expected = [places[place] for place in chain.from_iterable(matches)]
        for way in ways:
            split(way, text.encode(), places[-1], spans, byref(count))
            if spans[: 2 * count.value] != expected:
                log.warning(
                    "the pattern %r is not compiled, because it would split %a differently from the regex module; this "
                    "is an error in bpeflow: please report it. Results are right, as the regex module is used instead",
                    source,
                    text,
                )
                raise UnsupportedPattern("its automaton differs from the regex module, which is an error in bpeflow")
        if thread_time() > begun + _MAX_SECONDS:
            break


def _texts(step: CompiledStep) -> Iterator[str]:
    """Yield texts of characters of all classes: random walks through the automaton."""
    chance = random.Random(33)  # noqa: S311 (the same texts each time)
    classes = range(step.classes)
    members: list[list[str]] = [[] for _ in classes]  # of each class some, at the ends of ranges
    for number, (first, after) in enumerate(pairwise([*step.ranges, 0x110000])):
        members[step.range_class[number]] += [chr(end) for end in (first, after - 1) if not 0xD800 <= end < 0xE000]
    next_states = np.frombuffer(step.next, np.uint16).reshape(-1, step.classes + 1)[:, :-1].tolist()
    alive = [[one for one in classes if row[one] > 1] for row in next_states]
    for _ in range(_TEXTS):
        text = ""
        state = 0
        for _ in range(chance.randint(1, _MOST)):
            read = chance.choice((chance.random() < 0.8 and alive[state]) or classes)
            text += chance.choice(members[read])
            state = max((next_states[state][read] >> 1) - 1, 0)
        yield text
