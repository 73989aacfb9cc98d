"""Dividing text into chunks: files by reading only a few small windows of each, streams as they are read.

The definition of documents (`Delimiters.documents`) reads a file from its start. Which of two overlapping delimiters it
takes depends on the delimiters that it took before. The planner jumps into the middle of the file instead. It may end a
chunk at position p only if no delimiter taken by the definition spans p. Then the two sides, each read on its own,
together give the same result as the whole:

* Left of p: every delimiter that the definition takes there ends at or before p. So the left side contains it, and
  contains no others.
* Right of p: the definition continues from p as it would from the start of a file.

Two facts make it possible to decide this without reading the file from its start:

* A position is *free* if no occurrence of any delimiter, taken or not, spans it. Every delimiter that is taken is an
  occurrence. So a chunk may end at every free position where the pattern allows a cut.
* Reading from left to right, beginning at a free position, takes exactly the delimiters that the definition takes. So a
  chunk may end after the first separator found by reading from a free position.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from bpeflow._util.text import format_size
from bpeflow.corpus.documents import Chunk, Delimiters, StreamChunk
from bpeflow.corpus.files import Blocks, InputFile, convert_errors
from bpeflow.corpus.text_rules import TextRules
from bpeflow.errors import CorpusError
from bpeflow.pretokenize.cutter import LOOK_AHEAD, LOOK_BEHIND, Cutter

#: How far past its size a chunk looks for a separator before a document is cut. Larger: chunks of whole documents even
#: where documents are long; smaller: chunks closer to the requested size, and fewer bytes read by the planner.
LOOK_AHEAD_BYTES = 1 << 20

#: Bytes read at a time. Larger: more bytes read in vain where separators are close together; smaller: more reads where
#: they are far apart.
WINDOW_BYTES = 64 * 1024


def plan_chunks(file: InputFile, chunk_size: int, rules: TextRules) -> Iterator[Chunk]:
    """Divide a file, or a part of one, into chunks, in order and without gaps or overlaps.

    A chunk ends after the first separator that ends at or after `chunk_size` bytes. The search looks ahead
    `LOOK_AHEAD_BYTES`, but at most `chunk_size` bytes, so that small chunks stay cheap to plan. If it finds no
    separator, the chunk ends inside a document, at a safe cut of the pattern. Where cuts are not allowed, the chunk
    ends at the next separator, however far away, or at the end of the file.

    Every `chunk_size` results in the same pre-tokens in total and in the same documents. The plan is lazy: it keeps one
    window of the file in memory. Bytes appended to the file since it was found are not read. An empty file has no
    chunks.

    Args:
        file: the file or the part of one.
        chunk_size: bytes in a chunk, approximately.
        rules: the delimiters, and whether and where a document may be cut.

    Raises:
        CorpusError: the file has vanished or become shorter since it was found, or no chunk can end within the bytes
            that `rules` allow.
    """
    with _boundaries(file, rules) as finder:
        reach = min(chunk_size, LOOK_AHEAD_BYTES)
        offset, stop = file.begin, file.begin + file.weight
        while offset < stop:
            target = offset + chunk_size
            end = stop if target >= stop else min(finder.next_boundary(target, reach), stop)
            yield Chunk(file.name, offset, end - offset, end == file.size, file.source)
            offset = end


def find_boundary(file: InputFile, target: int, rules: TextRules) -> int:
    """Return the position at or soon after `target` where a file may be divided; at the latest, the end of the file.

    Args:
        file: the file.
        target: the preferred position.
        rules: as for `plan_chunks`.

    Raises:
        CorpusError: as for `plan_chunks`.
    """
    with _boundaries(file, rules) as finder:
        return finder.next_boundary(target, LOOK_AHEAD_BYTES)


@contextmanager
def _boundaries(file: InputFile, rules: TextRules) -> Iterator[BoundaryFinder]:
    """Open a file to find boundaries in it, and check that it has not become shorter since it was found."""
    with convert_errors(file), file.open() as stream:
        found, size = file.size or 0, os.fstat(stream.fileno()).st_size
        if size < found:
            raise CorpusError(f"{file.name} shrank from {found:,} to {size:,} bytes; run again when it is complete")

        def read_at(start: int, length: int) -> bytes:
            stream.seek(start)
            window = stream.read(length)
            if len(window) < length:
                raise CorpusError(f"{file.name} became shorter while it was read; run again when it is complete")
            return window

        yield BoundaryFinder(file.name, read_at, lambda _: found, rules)


def cannot_divide(name: str, start: int, longest: int) -> CorpusError:
    """Return the error for text that has neither a separator nor a safe cut and is too long to hold in memory."""
    return CorpusError(
        f"{name}: more than {format_size(longest)} from byte {start:,} on cannot be divided, neither by lines of JSON, "
        "nor at a document separator, nor by the pattern; check input_format, check that separator is the text between "
        "your documents, and look for damage, such as an endless word. A memory_limit for training of 16 times its "
        "length admits such a text"
    )


@dataclass
class BoundaryFinder:
    """Finds the positions at which a text may be divided, in bytes from its start.

    Attributes:
        name: the name of the text for messages.
        read_at: returns `length` bytes from a position on, which are there.
        fill: makes the text ready to be read up to an end, and returns the end of what is ready. This is less than what
            was asked for only at the end of the text.
        rules: the delimiters, whether and where a document may be cut, and the upper bound on the bytes without a
            boundary.
    """

    name: str
    read_at: Callable[[int, int], bytes]
    fill: Callable[[int], int]
    rules: TextRules

    def __post_init__(self) -> None:
        self._ready = 0
        self._delimiters = delimiters = self.rules.delimiters
        # An occurrence that spans a position begins at most this many bytes before it.
        self._overhang = max(delimiters.longest - 1, 0)
        self._window_bytes = max(WINDOW_BYTES, 4 * delimiters.longest, 2 * (LOOK_BEHIND + LOOK_AHEAD))

    @cached_property
    def _cutter(self) -> Cutter | None:
        return self.rules.cutter

    def next_boundary(self, target: int, reach: int) -> int:
        """Return the first boundary at or soon after `target`; at the latest, the end of the file.

        This is the end of the first separator that ends at or after `target` and starts less than `reach` bytes after
        it. Failing that, it is the first safe cut in the same stretch. Failing that, the next stretch is searched in
        the same way, which is twice as long, and so on. (Doubling keeps a small `reach` cheap in a long document that
        cannot be cut.)

        Raises:
            CorpusError: no boundary is within the upper bound, or the file became shorter.
        """
        start, limit = target, target + self.rules.longest
        while True:
            stop = min(start + reach, limit + 1)
            ready = self.fill(stop + 1)
            if start >= ready:
                return ready
            if start > limit:
                raise cannot_divide(self.name, target, self.rules.longest)
            stop = min(stop, ready)
            free = self._next_free(max(start - len(self._delimiters.separator_bytes), 0))
            boundary = self._separator_end(free, stop)
            if boundary is None:
                boundary = self._safe_cut(start, stop)
            if boundary is not None:
                return boundary
            start = max(stop, free)  # if `free` is beyond `stop`, no position between them is free
            reach *= 2

    def _next_free(self, position: int) -> int:
        """Return the first free position at or after `position`."""
        start = max(position - self._overhang, 0)
        while True:
            window, decided = self._read(start)
            for occurrence in self._delimiters.literals.occurrences(window):
                if start + occurrence.start >= position:
                    break
                position = max(position, start + occurrence.end)
            # From `decided` on, the window's end may have cut off an occurrence. The next window reads it again.
            if position <= decided:
                return position
            start = decided

    def _separator_end(self, free: int, stop: int) -> int | None:
        """Return the end of the first separator that starts before `stop`, reading from a free position."""
        if self._delimiters.separator is None:
            return None
        position = free
        while position < stop:
            start = position
            window, decided = self._read(start)
            position = decided
            for found in self._delimiters.literals.matches(window):
                if start + found.start >= min(stop, decided):
                    break
                if window[found.start : found.end] == self._delimiters.separator_bytes:
                    return start + found.end
                position = max(decided, start + found.end)
        return None

    def _safe_cut(self, start: int, stop: int) -> int | None:
        """Return the first free position in ``[start, stop)`` where the pattern allows a cut."""
        if self._cutter is None:
            return None
        position = start
        while position < stop:
            before = max(position - LOOK_BEHIND, 0)
            window, _ = self._read(before)
            cut = self._cutter.find_cut(window, position - before)
            if cut is None:
                end = before + len(window)
                # The window ended too soon after its last positions to decide about them. The next window does.
                position = end if end == self._ready else end - (LOOK_AHEAD - 1)
                continue
            position = before + cut
            free = self._next_free(position)
            if free == position:
                return position if position < stop else None
            position = free
        return None

    def _read(self, start: int) -> tuple[bytes, int]:
        """Return the window that begins at `start`, and the position in the file before which its delimiters are known.

        Every occurrence that starts before that position ends inside the window. So the window's end cuts off neither
        such an occurrence nor a longer one at the same position.
        """
        self._ready = self.fill(start + self._window_bytes + 1)
        end = min(start + self._window_bytes, self._ready)
        return self.read_at(start, end - start), end if end == self._ready else end - self._overhang


# ---- streams ----


def cut_text(
    blocks: Blocks,
    chunk_size: int,
    rules: TextRules,
    source: int = 0,
    holds: Literal["text", "jsonl"] = "text",
) -> Iterator[StreamChunk]:
    """Divide a stream of text, or of lines of JSON, into the same chunks as `plan_chunks` divides a file.

    Args:
        blocks: the stream.
        chunk_size: bytes in a chunk, approximately.
        rules: the delimiters, and whether and where a document may be cut; for lines of JSON `line_rules`.
        source: number of the source that the stream belongs to.
        holds: what the chunks hold.

    Raises:
        CorpusError: the text cannot be divided within the bytes that `rules` allow.
    """
    # A boundary depends on bytes before it, too; see `BoundaryFinder.next_boundary`.
    window = _Window(blocks, rules.longest + 2 * chunk_size, LOOK_BEHIND + 2 * rules.delimiters.longest)
    finder = BoundaryFinder(blocks.name, window.read_at, window.fill, rules)
    offset = reported = 0  # `reported`: bytes read for the chunks yielded so far
    line = 1
    while True:
        end = finder.next_boundary(offset + chunk_size, min(chunk_size, LOOK_AHEAD_BYTES))
        if end == offset:
            return
        data = window.take(end)
        ends_file = window.fill(end + 1) == end
        yield StreamChunk(
            blocks.name, offset, len(data), ends_file, source,
            data=data, holds=holds, line=line, bytes_read=blocks.bytes_read - reported,
        )  # fmt: skip
        offset, reported = end, blocks.bytes_read
        if holds == "jsonl":
            line += data.count(b"\n")


def line_rules(rules: TextRules) -> TextRules:
    """Return the rules that divide lines of JSON: after line ends only."""
    return replace(rules, delimiters=Delimiters("\n"), invalid_utf8="skip")  # under which there are no safe cuts


class _Window:
    """The part of a stream that is in memory.

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

    def read_at(self, start: int, length: int) -> bytes:
        start -= self._start
        return bytes(self._data[start : start + length])
