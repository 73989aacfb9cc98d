"""`ChunkJoiner`: writes encoded chunks to a token file, with the end tokens that the ends of files call for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpeflow.dataset.chunk_encoder import EncodedChunk, Rest
from bpeflow.dataset.token_file import TokenWriter


class ChunkJoiner:
    """Appends chunks, in the order of the corpus, to a token file, and finds where its documents end.

    Separators have already become end tokens. The remaining case is a file that does not end with a separator. The end
    of such a file ends a document, too, and an end token follows it if another document follows, or if every document
    is to have one. White space between a file's last separator and its end is not a document. It belongs to the one
    before.

    Args:
        writer: the token file.
        end_id: the end token; None if there is none.
        end_last: whether an end token follows the last document of the corpus, too.
    """

    def __init__(self, writer: TokenWriter, end_id: int | None, end_last: bool) -> None:
        self._writer = writer
        self._end_id = end_id
        self._end_last = end_last
        self._rest: Rest = "none"  # the text of the file so far after its last separator
        self._has_separator = False  # whether the file so far has one
        self._owes_end_token = False  # whether the last document has no end token
        self._last_end: NDArray[np.int64] = np.empty(0, np.int64)  # not written yet, as white space may follow

    def add(self, chunk: EncodedChunk) -> None:
        """Append a chunk. Raises `OSError` if writing fails."""
        if len(chunk.ends) or chunk.rest != "none":
            self._write_owed_end_token()
        before = self._writer.tokens
        self._writer.write(chunk.ids)
        if len(chunk.ends):
            self._end_documents(chunk.ends + before)
            self._has_separator, self._rest = True, "none"
        if chunk.rest == "text" or self._rest == "none":
            self._rest = chunk.rest
        if chunk.ends_file:
            self._end_file()

    def finish(self) -> None:
        """Complete the token file. Raises `OSError` if writing fails."""
        if self._end_last:
            self._write_owed_end_token()
        self._writer.end_documents(self._last_end)

    def _end_file(self) -> None:
        end = np.array([self._writer.tokens], np.int64)
        if self._rest == "blank" and self._has_separator:
            self._last_end = end
        elif self._rest != "none":
            self._end_documents(end)
            self._owes_end_token = True
        self._rest, self._has_separator = "none", False

    def _write_owed_end_token(self) -> None:
        if self._owes_end_token and self._end_id is not None:
            self._writer.write(np.array([self._end_id], np.uint32))
            self._last_end = np.array([self._writer.tokens], np.int64)
        self._owes_end_token = False

    def _end_documents(self, ends: NDArray[np.int64]) -> None:
        self._writer.end_documents(np.concatenate([self._last_end, ends[:-1]]))
        self._last_end = ends[-1:]
