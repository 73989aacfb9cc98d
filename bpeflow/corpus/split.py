"""Where a file may be divided into chunks, found by looking at a few small windows of it.

The definition (`Delimiters.documents`) reads a file from its start: which of two overlapping delimiters is taken
depends on what was taken before them. The planner jumps into the middle instead, and may end a chunk at position p
only if nothing taken by the definition lies across p: then both sides, each read on its own, give together what the
whole gives. (Left of p: where the definition takes a delimiter, that delimiter ends at or before p, so the left side
holds it too and holds no others. Right of p: the definition's reading goes on from p as from a start.)

Two facts make that decidable on the spot:

* A position is *free* if no occurrence of any delimiter, taken or not, lies across it. Taken ones are occurrences,
  so a chunk may end at every free position where the pattern allows a cut.
* From a free position on, reading left to right takes exactly what the definition takes. So a chunk may end after the
  first separator that is found by reading on from a free position.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from bpeflow.corpus.chunk import Chunk, CorpusFile
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.errors import ConfigError, CorpusError
from bpeflow.pretokenize.cuts import LOOK_AHEAD, LOOK_BEHIND
from bpeflow.pretokenize.regex import Pretokenizer

LOOK_AHEAD_BYTES = 1 << 20


"""How far past its size a chunk looks for a separator before a document is cut. Larger: chunks of whole documents even
where those are long; smaller: chunks nearer to the size asked for, and less to read for the plan."""


def plan_chunks(
    files: Iterable[CorpusFile],
    chunk_size: int,
    delimiters: Delimiters,
    pretokenizer: Pretokenizer,
    cut_documents: bool = True,
    longest: int = sys.maxsize,
) -> Iterator[Chunk]:
    """Divide files, or parts of them, into chunks of about ``chunk_size`` bytes; in order, without gap or overlap.
    Empty files give none.

    A chunk ends after the first separator at or after its size, looking ahead `LOOK_AHEAD_BYTES` (and no further than
    once its size again, so that small chunks stay cheap to plan); failing that, inside a document, at a safe cut of
    the pattern. Where that is not allowed (a custom pattern; ``cut_documents=False``, as ``invalid_utf8: skip`` needs,
    which drops whole documents) at the next separator however far, or at the end of the file.

    Every ``chunk_size`` gives the same pre-tokens in total, and the same documents. The plan is lazy, and holds one
    open file and one window of it in memory.

    ConfigError if ``chunk_size`` is below 1; CorpusError for a file that has vanished or shrunk since it was found, and
    for about ``longest`` bytes in which a chunk may not end.
    What was appended to a file since then is not read.
    """
    if chunk_size < 1:
        raise ConfigError(f"the chunk size must be at least 1 byte, not {chunk_size}")
    cutter = _cutter(pretokenizer, cut_documents)
    return chain.from_iterable(_file_chunks(file, chunk_size, delimiters, cutter, longest) for file in files)


def find_boundary(
    file: CorpusFile,
    target: int,
    delimiters: Delimiters,
    pretokenizer: Pretokenizer,
    cut_documents: bool = True,
    longest: int = sys.maxsize,
) -> int:
    """Return where a file may be divided: at byte ``target`` or soon after it, as chunks are; at the latest at its end.

    CorpusError for a file that has vanished or shrunk since it was found, and for no boundary in ``longest`` bytes.
    """
    with _boundaries(file, delimiters, _cutter(pretokenizer, cut_documents), longest) as finder:
        return finder.next_boundary(target, LOOK_AHEAD_BYTES)


def _file_chunks(
    file: CorpusFile, chunk_size: int, delimiters: Delimiters, cutter: Pretokenizer | None, longest: int
) -> Iterator[Chunk]:
    with _boundaries(file, delimiters, cutter, longest) as finder:
        reach = min(chunk_size, LOOK_AHEAD_BYTES)
        offset, stop = file.begin, file.size if file.end is None else file.end
        while offset < stop:
            target = offset + chunk_size
            end = stop if target >= stop else min(finder.next_boundary(target, reach), stop)
            yield Chunk(str(file.path), offset, end - offset, end == file.size, file.source)
            offset = end


@contextmanager
def _boundaries(
    file: CorpusFile, delimiters: Delimiters, cutter: Pretokenizer | None, longest: int
) -> Iterator[BoundaryFinder]:
    """Open a file, see that it is as long as it was, and find boundaries in it."""
    try:
        with file.path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < file.size:
                raise CorpusError(f"{file.path} shrank from {file.size} to {size} bytes; run again when it is complete")
            yield BoundaryFinder(stream, file.size, delimiters, cutter, longest)
    except OSError as error:
        raise CorpusError(f"cannot read {file.path}: {error.strerror}") from error


def _cutter(pretokenizer: Pretokenizer, cut_documents: bool) -> Pretokenizer | None:
    return pretokenizer if cut_documents and not pretokenizer.custom else None


WINDOW_BYTES = 64 * 1024


"""Read at a time. Smaller: more reads where separators are far apart; larger: more bytes read in vain where not."""


def cannot_divide(name: str, start: int, length: int) -> CorpusError:
    """Say that so many bytes, for which there is no room, hold neither a separator nor a safe cut."""
    return CorpusError(
        f"{name}: {length:,} bytes from byte {start:,} on cannot be divided at a document separator or by the pattern, "
        "and memory_limit leaves no room for more; raise it, or see that separator is what stands between documents"
    )


class Seekable(Protocol):
    """What is asked of a file."""

    @property
    def name(self) -> object: ...
    def seek(self, position: int, /) -> object: ...
    def read(self, length: int, /) -> bytes: ...


class BoundaryFinder:
    """Finds the positions at which one file may be divided. Positions count bytes from the file's beginning.

    ``cutter`` allows cuts inside documents, at the pattern's safe cuts; None allows none. CorpusError where none is
    allowed in more than ``longest`` bytes.
    """

    def __init__(
        self,
        file: Seekable,
        size: int,
        delimiters: Delimiters,
        cutter: Pretokenizer | None,
        longest: int = sys.maxsize,
    ) -> None:
        self._file = file
        self._size = size
        self._delimiters = delimiters
        self._cutter = cutter
        self._longest = longest
        self._separator_bytes = len(delimiters.separator_bytes)
        # How far an occurrence can reach over a position: that many bytes before it can hold the start of one.
        self._overhang = max(delimiters.longest - 1, 0)
        self._window_bytes = max(WINDOW_BYTES, 4 * delimiters.longest, 2 * (LOOK_BEHIND + LOOK_AHEAD))

    def next_boundary(self, target: int, reach: int) -> int:
        """The end of the chunk that should end at ``target``, or soon after it; at the latest the end of the file.

        The first separator that ends at or after ``target`` and starts less than ``reach`` bytes after it, else the
        first safe cut there, else likewise in the stretch behind, which is twice as long, and so on. (Doubling keeps a
        small ``reach`` cheap in a long document that cannot be cut.)
        """
        start = target
        while True:
            self._see(start + reach)
            if start >= self._size:
                return self._size
            if start - target > self._longest:
                raise cannot_divide(str(self._file.name), target, start - target)
            stop = min(start + reach, self._size)
            free = self._next_free(max(start - self._separator_bytes, 0))
            boundary = self._separator_end(free, stop)
            if boundary is None:
                boundary = self._safe_cut(start, stop)
            if boundary is not None:
                return boundary
            start = max(stop, free)  # between the two nothing is free
            reach *= 2

    def _see(self, end: int) -> None:
        """Be told that bytes up to ``end`` are going to be read: streams get them, and learn whether they end there."""

    def _next_free(self, position: int) -> int:
        """The first position from ``position`` on that no delimiter's bytes lie across."""
        start = max(position - self._overhang, 0)
        while True:
            window, decided = self._read(start)
            for occurrence in self._delimiters.occurrences(window):
                if start + occurrence.start() >= position:
                    break
                position = max(position, start + occurrence.end())
            # Past `decided` an occurrence may have been read too short; then the next window reads it again.
            if position <= decided:
                return position
            start = decided

    def _separator_end(self, free: int, stop: int) -> int | None:
        """The end of the first separator that starts before ``stop``, reading on from a free position."""
        if self._delimiters.separator is None:
            return None
        position = free
        while position < stop:
            start = position
            window, decided = self._read(start)
            position = decided
            for match in self._delimiters.matches(window):
                if start + match.start() >= min(stop, decided):
                    break
                if self._delimiters.is_separator(match):
                    return start + match.end()
                position = max(decided, start + match.end())
        return None

    def _safe_cut(self, start: int, stop: int) -> int | None:
        """The first free position in ``[start, stop)`` where the pattern may be cut."""
        if self._cutter is None:
            return None
        position = start
        while position < stop:
            before = max(position - LOOK_BEHIND, 0)
            window, _ = self._read(before)
            cut = self._cutter.find_cut(window, position - before)
            if cut is None:
                end = before + len(window)
                # The last positions of the window could not see far enough ahead: the next window judges them again.
                position = end if end == self._size else end - (LOOK_AHEAD - 1)
                continue
            position = before + cut
            free = self._next_free(position)
            if free == position:
                return position if position < stop else None
            position = free
        return None

    def _read(self, start: int) -> tuple[bytes, int]:
        """The window that begins at ``start``, and the file position before which its delimiters are decided.

        An occurrence that starts before that position ends inside the window, so that neither it nor a longer one at
        the same place can be cut off by the window's end.
        """
        self._see(start + self._window_bytes)
        length = min(self._window_bytes, self._size - start)
        self._file.seek(start)
        window = self._file.read(length)
        if len(window) < length:
            raise CorpusError(f"{self._file.name} became shorter while it was read; run again when it is complete")
        end = start + length
        return window, end if end == self._size else end - self._overhang
