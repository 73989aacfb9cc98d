"""`ChunkJoiner`: puts encoded chunks together, with the end tokens that the ends of files call for."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bpeflow.dataset.chunk_encoder import EncodedChunk, Rest
from bpeflow.dataset.token_file import Ids
from bpeflow.dataset.token_writer import NO_ENDS


class SupportsWriteIds(Protocol):
    """A writer of ids, such as `TokenSetWriter`."""

    def write(self, ids: Ids, ends: NDArray[np.int64] = ...) -> None:
        """Append ids, as `TokenWriter.write` does."""


class ChunkJoiner:
    """Writes chunks, in the order of the corpus, and finds where its documents end.

    Separators have already become end tokens. The remaining case is a file that does not end with a separator. The end
    of such a file ends a document, too, and an end token follows it if another document follows, or if every document
    is to have one. White space between a file's last separator and its end is not a document. It belongs to the one
    before.

    Ids are written when it is known which document they belong to, so that white space after a separator waits for what
    follows. The end of a document is written with the first ids of the next one.

    Args:
        writer: takes the ids.
        end_id: the end token; None if there is none.
        end_last: whether an end token follows the last document of the corpus, too.
    """

    def __init__(self, writer: SupportsWriteIds, end_id: int | None, end_last: bool) -> None:
        self._writer = writer
        self._end_id = end_id
        self._end_last = end_last
        self._rest: Rest = "none"  # the text of the file so far after its last separator
        self._has_separator = False  # whether the file so far has one
        self._blank: list[Ids] = []  # the white space after it, without any other text so far
        self._ended = False  # whether the document whose ids were written last has ended, and its end was not written
        self._owes_end_token = False  # whether that document has no end token

    def add(self, chunk: EncodedChunk) -> None:
        """Append a chunk. Raises `OSError` if writing fails."""
        if len(chunk.ends) or chunk.rest != "none":
            self._write_owed_end_token()
        ids, ends = chunk.ids, chunk.ends
        if len(ends):
            last = int(ends[-1])
            self._write(ids[:last], ends[:-1])
            self._ended = self._has_separator = True
            self._rest = "none"
            ids = ids[last:]
        if chunk.rest == "text" or self._rest == "none":
            self._rest = chunk.rest
        if self._rest == "blank" and self._has_separator:
            self._blank.append(ids)
        elif self._rest != "none":
            self._write(ids)
        if chunk.ends_file:
            self._end_file()

    def finish(self) -> None:
        """Write the rest. Raises `OSError` if writing fails."""
        if self._end_last:
            self._write_owed_end_token()
        if self._ended:
            self._writer.write(np.empty(0, np.uint16), np.zeros(1, np.int64))

    def _end_file(self) -> None:
        for ids in self._blank:
            self._writer.write(ids)
        if self._rest == "text" or (self._rest == "blank" and not self._has_separator):
            self._ended = self._owes_end_token = True
        self._blank, self._rest, self._has_separator = [], "none", False

    def _write_owed_end_token(self) -> None:
        if self._owes_end_token and self._end_id is not None:
            self._writer.write(np.array([self._end_id], np.uint32))
        self._owes_end_token = False

    def _write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Write ids that do not belong to a document that has ended, after the white space that comes before them."""
        if self._blank:
            ends = ends + sum(map(len, self._blank))
            ids = np.concatenate([*self._blank, ids])
            self._blank = []
        if self._ended:
            ends = np.concatenate([np.zeros(1, np.int64), ends])
            self._ended = False
        self._writer.write(ids, ends)
