"""Text in streams: dividing it into chunks at the boundaries where `split` would divide a file.

Only the current chunk is in memory, so text that cannot be divided must not be longer than a limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.corpus.split import LOOK_AHEAD_BYTES, BoundaryFinder, cannot_divide
from bpeflow.corpus.text_rules import TextRules
from bpeflow.pretokenize.cuts import LOOK_BEHIND


def cut_text(blocks: Blocks, chunk_size: int, rules: TextRules, longest: int, source: int = 0) -> Iterator[StreamChunk]:
    """Divide a stream of text into the same chunks as `plan_chunks` divides a file.

    Args:
        blocks: the stream.
        chunk_size: bytes in a chunk, approximately.
        rules: the delimiters, and whether and where a document may be cut.
        longest: upper bound on the bytes that cannot be divided, in addition to two chunks.
        source: number of the source that the stream belongs to.

    Raises:
        CorpusError: the text cannot be divided within the upper bound.
    """
    # A boundary depends on bytes before it, too; see `BoundaryFinder.next_boundary`.
    window = _Window(blocks, longest + 2 * chunk_size, LOOK_BEHIND + 2 * rules.delimiters.longest)
    finder = _StreamBoundaryFinder(window, rules)
    offset = reported = 0  # `reported`: bytes read for the chunks yielded so far
    while True:
        end = finder.next_boundary(offset + chunk_size, min(chunk_size, LOOK_AHEAD_BYTES))
        if end == offset:
            return
        data = window.take(end)
        ends_file = window.fill(end + 1) == end
        yield StreamChunk(
            blocks.name, offset, len(data), ends_file, source,
            data=data, holds="text", bytes_read=blocks.bytes_read - reported,
        )  # fmt: skip
        offset, reported = end, blocks.bytes_read


class _Window:
    """The part of a stream that is in memory, with the methods of a file.

    It consists of the bytes that were read but not taken yet, and at least `look_behind` bytes before them.
    """

    def __init__(self, blocks: Blocks, longest: int, look_behind: int) -> None:
        self.name = blocks.name
        self._blocks = blocks
        self._longest = longest
        self._data = bytearray()
        self._look_behind = look_behind
        self._start = 0  # position of `_data` in the stream
        self._taken = 0  # bytes of the stream that `take` has returned
        self._position = 0  # of the next `read`, within `_data`
        self._ended = False

    def fill(self, end: int) -> int:
        """Read the stream up to byte `end`, and return the end of the bytes in memory: less if the stream ends."""
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
        """Return the bytes up to `end` that were not taken yet."""
        data = self._data[self._taken - self._start : end - self._start]
        self._taken = end
        start = max(end - self._look_behind, self._start)
        del self._data[: start - self._start]
        self._start = start
        return data

    def seek(self, position: int) -> None:
        self._position = position - self._start

    def read(self, length: int) -> bytes:
        return bytes(self._data[self._position : self._position + length])


class _StreamBoundaryFinder(BoundaryFinder):
    """Finds boundaries in a stream, whose size is known once its end has been read."""

    def __init__(self, window: _Window, rules: TextRules) -> None:
        super().__init__(window, sys.maxsize, rules)
        self._window = window

    def _prepare(self, end: int) -> None:
        if (available := self._window.fill(end + 1)) <= end:
            self._size = available
