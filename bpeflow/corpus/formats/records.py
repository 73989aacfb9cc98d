"""Records: documents that are separate values (JSON Lines, Parquet, iterables) instead of text between separators.

The records of a chunk are stored as one text with `RECORD_END` after each. So the code that counts the documents of a
text counts records too, and as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.errors import InvalidUtf8Error

#: The remedy for documents that are not UTF-8.
UTF8_REMEDY = "use invalid_utf8: replace to put U+FFFD there, or invalid_utf8: skip to leave out such documents"

#: The remedy for documents that are null.
NULL_REMEDY = "use invalid_utf8: skip to leave out such documents"

#: Upper bound on the names that `format_names` lists. More: longer messages; fewer: the right name may be missing.
_SHOWN_NAMES = 8


class Records(NamedTuple):
    """The documents of a chunk.

    Attributes:
        data: the documents, each followed by `RECORD_END`.
        skipped: number of documents that were left out.
    """

    data: bytearray
    skipped: int


def record_delimiters(delimiters: Delimiters) -> Delimiters:
    """Return the delimiters for a chunk of records, in which only the end of a record ends a document.

    The separator only splits the document that contains it, as special tokens do.
    """
    separator = [] if delimiters.separator is None else [delimiters.separator]
    return Delimiters(None, [*delimiters.special_tokens, *separator], RECORD_END)


def encode_document(document: str | bytes, where: str, invalid_utf8: InvalidUtf8Policy) -> bytes | None:
    """Return a document as valid UTF-8; None if it is skipped.

    Raises:
        InvalidUtf8Error: the policy is ``"error"`` and the document is not UTF-8. The message begins with `where`.
    """
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
            raise InvalidUtf8Error(f"{where}: not UTF-8 at {at} the document ({error.reason}); {UTF8_REMEDY}") from None
        return _replace_invalid(document).encode()
    return document


def _replace_invalid(document: str | bytes) -> str:
    if isinstance(document, bytes):
        return document.decode(errors="replace")
    return document.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def format_names(names: Iterable[str]) -> str:
    """Format the first few names of fields or columns for a message."""
    names = list(names)
    return (
        ", ".join(map(repr, names[:_SHOWN_NAMES])) + (", …" if len(names) > _SHOWN_NAMES else "") if names else "none"
    )


class RecordChunks:
    """Gathers whole documents into chunks of about `chunk_size` bytes."""

    def __init__(self, path: str, chunk_size: int, source: int) -> None:
        self._path = path
        self._chunk_size = chunk_size
        self._source = source
        self._data = bytearray()
        self._skipped = self._offset = 0
        self._bytes_read = 0

    def add(self, document: bytes | None, bytes_read: int | None = None) -> Iterator[StreamChunk]:
        """Add a document, or None for one that is skipped, and yield a chunk when it is full.

        Args:
            document: the document in valid UTF-8.
            bytes_read: bytes read from the file so far; None if there is no file, and the bytes of the text count.
        """
        if document is None:
            self._skipped += 1
            return
        self._data += document
        self._data += RECORD_END
        if len(self._data) >= self._chunk_size:
            yield from self.end(bytes_read)

    def end(self, bytes_read: int | None = None) -> Iterator[StreamChunk]:
        """Yield the last chunk, if there is anything left. See `add` for `bytes_read`."""
        size = len(self._data)
        if not size and not self._skipped and bytes_read is None:
            return
        new_bytes = size if bytes_read is None else bytes_read - self._bytes_read
        self._bytes_read = self._bytes_read if bytes_read is None else bytes_read
        yield StreamChunk(
            self._path, self._offset, size, False, self._source,
            data=self._data, holds="records", skipped=self._skipped, bytes_read=new_bytes,
        )  # fmt: skip
        self._offset += size
        self._data, self._skipped = bytearray(), 0
