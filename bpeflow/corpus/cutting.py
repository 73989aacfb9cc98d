"""Streams divided into chunks: text where `boundaries` allows it, lines at their ends.

Only what belongs to the chunk in hand is in memory. What cannot be divided may not be longer than a limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bpeflow.corpus.boundaries import BoundaryFinder, cannot_divide
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.plan import LOOK_AHEAD_BYTES
from bpeflow.corpus.streams import Blocks
from bpeflow.errors import CorpusError
from bpeflow.pretokenize import Pretokenizer
from bpeflow.pretokenize.cuts import LOOK_BEHIND


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


def cut_lines(blocks: Blocks, chunk_size: int, longest: int, source: int = 0) -> Iterator[StreamChunk]:
    """Divide a stream into chunks of whole lines. Raises `CorpusError` for a line of more than ``longest`` bytes."""
    data = bytearray()
    offset = taken = searched = 0
    line = 1
    for block in blocks:
        data += block
        if len(data) < chunk_size:
            continue
        end = data.rfind(b"\n", searched) + 1
        if not end:
            searched = len(data)
            if len(data) > max(longest, chunk_size):
                raise CorpusError(
                    f"{blocks.name}: line {line:,} has more than {longest:,} bytes, for which memory_limit leaves no "
                    "room; raise it, or leave the line out"
                )
            continue
        rest = data[end:]
        del data[end:]
        yield StreamChunk(
            blocks.name, offset, end, False, source, data=data, holds="jsonl", line=line, taken=blocks.taken - taken
        )
        line += data.count(b"\n")
        offset, taken, data, searched = offset + end, blocks.taken, rest, 0
    if data:
        yield StreamChunk(
            blocks.name, offset, len(data), True, source,
            data=data, holds="jsonl", line=line, taken=blocks.taken - taken,
        )  # fmt: skip


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
