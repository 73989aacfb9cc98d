"""Streams divided into chunks: text where `boundaries` allows it, lines at their ends.

Only what belongs to the chunk in hand is in memory. What cannot be divided may not be longer than a limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.corpus.split import LOOK_AHEAD_BYTES, BoundaryFinder, cannot_divide
from bpeflow.pretokenize.cuts import LOOK_BEHIND
from bpeflow.pretokenize.regex import Pretokenizer


def cut_text(
    blocks: Blocks, chunk_size: int, delimiters: Delimiters, cutter: Pretokenizer | None, longest: int, source: int = 0
) -> Iterator[StreamChunk]:
    """Divide a stream of text as `plan_chunks` divides a file; the chunks are the same.

    Raises `CorpusError` for a piece of more than ``longest`` bytes that cannot be divided.
    """
    # Where to cut is judged by what stands before, too; see `BoundaryFinder.next_boundary`.
    window = _Window(blocks, longest + 2 * chunk_size, LOOK_BEHIND + 2 * delimiters.longest)
    finder = _StreamBoundaries(window, delimiters, cutter)
    offset = taken = 0
    while True:
        end = finder.next_boundary(offset + chunk_size, min(chunk_size, LOOK_AHEAD_BYTES))
        if end == offset:
            return
        data = window.take(end)
        ends = window.see(end + 1) == end
        yield StreamChunk(
            blocks.name, offset, len(data), ends, source, data=data, holds="text", taken=blocks.taken - taken
        )
        offset, taken = end, blocks.taken


class _Window:
    """What of a stream is in memory, behind the methods of a file: what was not taken, and ``behind`` bytes before."""

    def __init__(self, blocks: Blocks, longest: int, behind: int) -> None:
        self.name = blocks.name
        self._blocks = blocks
        self._longest = longest
        self._data = bytearray()
        self._behind = behind
        self._start = 0  # of the bytes in memory
        self._taken = 0
        self._position = 0
        self._ended = False

    def see(self, end: int) -> int:
        """Read on until byte ``end`` of the stream is in memory; return how far it is (less: at its end)."""
        while self._start + len(self._data) < end and not self._ended:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
            else:
                self._data += block
            if len(self._data) > self._longest:
                raise cannot_divide(self.name, self._taken, self._longest)
        return self._start + len(self._data)

    def take(self, end: int) -> bytearray:
        """Give away the bytes up to ``end``."""
        data = self._data[self._taken - self._start : end - self._start]
        self._taken = end
        start = max(end - self._behind, self._start)
        del self._data[: start - self._start]
        self._start = start
        return data

    def seek(self, position: int) -> None:
        self._position = position - self._start

    def read(self, length: int) -> bytes:
        return bytes(self._data[self._position : self._position + length])


class _StreamBoundaries(BoundaryFinder):
    """Boundaries of a stream, whose size is known when its end has been seen."""

    def __init__(self, window: _Window, delimiters: Delimiters, cutter: Pretokenizer | None) -> None:
        super().__init__(window, sys.maxsize, delimiters, cutter)
        self._window = window

    def _see(self, end: int) -> None:
        if (seen := self._window.see(end + 1)) <= end:
            self._size = seen
