"""Records: documents that are values of their own, not text between separators.

They travel as one text with `RECORD_END` behind each, so that what counts documents in text counts them as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.errors import InvalidUtf8Error

_REMEDY = "use invalid_utf8: replace to put U+FFFD there, or invalid_utf8: skip to leave out such documents"

#: What to do about documents that are null.
NULL_REMEDY = "use invalid_utf8: skip to leave out such documents"

#: So many names of fields are told in an error.
_SHOWN_FIELDS = 8


class Records(NamedTuple):
    """The `data` of the documents of a chunk, and how many were left out (`skipped`)."""

    data: bytearray
    skipped: int


def record_delimiters(delimiters: Delimiters) -> Delimiters:
    """The delimiters in a chunk of records: nothing but a record's end ends a document."""
    separator = [] if delimiters.separator is None else [delimiters.separator]
    return Delimiters(None, [*delimiters.special_tokens, *separator], RECORD_END)


def checked_document(document: str | bytes, where: str, invalid_utf8: InvalidUtf8Policy) -> bytes | None:
    """A document as UTF-8; None if it is to be skipped. Raises `InvalidUtf8Error`, which begins with ``where``."""
    try:
        if isinstance(document, str):
            return document.encode()
        if not document.isascii():
            document.decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        if invalid_utf8 == "skip":
            return None
        if invalid_utf8 == "error":
            at = f"character {error.start} of" if isinstance(error, UnicodeEncodeError) else f"byte {error.start} of"
            raise InvalidUtf8Error(f"{where}: not UTF-8 at {at} the document ({error.reason}); {_REMEDY}") from None
        return _replaced(document).encode()
    return document


def _replaced(document: str | bytes) -> str:
    if isinstance(document, bytes):
        return document.decode(errors="replace")
    return document.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def names_of(names: Iterable[str]) -> str:
    """The first of some names, to be told in an error."""
    names = list(names)
    return (
        ", ".join(map(repr, names[:_SHOWN_FIELDS])) + (", …" if len(names) > _SHOWN_FIELDS else "") if names else "none"
    )


class RecordChunks:
    """Gathers documents into chunks of about ``chunk_size`` bytes. Documents are whole."""

    def __init__(self, path: str, chunk_size: int, source: int) -> None:
        self._path = path
        self._chunk_size = chunk_size
        self._source = source
        self._data = bytearray()
        self._skipped = self._offset = 0
        self._taken = 0

    def add(self, document: bytes | None, taken: int | None = None) -> Iterator[StreamChunk]:
        """Add a document, or None for one that is skipped; yield a chunk when one is full.

        ``taken``: how many bytes of the file were read so far; the text itself where there is none.
        """
        if document is None:
            self._skipped += 1
            return
        self._data += document
        self._data += RECORD_END
        if len(self._data) >= self._chunk_size:
            yield from self.end(taken)

    def end(self, taken: int | None = None) -> Iterator[StreamChunk]:
        """Yield what is left."""
        size = len(self._data)
        if not size and not self._skipped and taken is None:
            return
        weight = size if taken is None else taken - self._taken
        self._taken = self._taken if taken is None else taken
        yield StreamChunk(
            self._path, self._offset, size, False, self._source,
            data=self._data, holds="records", skipped=self._skipped, taken=weight,
        )  # fmt: skip
        self._offset += size
        self._data, self._skipped = bytearray(), 0
