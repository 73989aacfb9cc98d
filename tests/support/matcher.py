"""`Matcher`: how native code uses the tables of a compiled pattern, in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpeflow.pretokenize.automaton import DEAD
from bpeflow.pretokenize.tables import CompiledStep
from bpeflow.pretokenize.transducer import (
    BOUNDARY,
    BOUNDARY_BEFORE_PREVIOUS,
    IN_GAP,
    SPECIAL,
    STARTS,
    STARTS_AT_PREVIOUS,
)


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
