"""Records: documents that are values of their own, not text between separators.

They travel as one text with `RECORD_END` behind each, so that what counts documents in text counts them as fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import InvalidUtf8Policy
from bpeflow.errors import CorpusError, InvalidUtf8Error

_BOM = b"\xef\xbb\xbf"
_REMEDY = "use invalid_utf8: replace to put U+FFFD there, or invalid_utf8: skip to leave out such documents"

#: What to do about documents that are null.
NULL_REMEDY = "use invalid_utf8: skip to leave out such documents"

#: So many names of fields are told in an error.
_SHOWN = 8


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


def parse_lines(chunk: StreamChunk, field: Sequence[str], invalid_utf8: InvalidUtf8Policy) -> Records:
    """The documents of the lines of JSON in a chunk: the value of ``field``, which may be nested, of each.

    Lines of white space are none. Raises `CorpusError` or `InvalidUtf8Error` with the number of the line.
    """
    data = bytearray()
    skipped = 0
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
        for document in parse_line(line, number, chunk.path, field, invalid_utf8):
            if document is None:
                skipped += 1
            else:
                data += document
                data += RECORD_END
    return Records(data, skipped)


def parse_line(
    line: bytearray, number: int, path: str, field: Sequence[str], invalid_utf8: InvalidUtf8Policy
) -> Iterator[bytes | None]:
    """The document of a line, if it is one; None if it is to be skipped. Raises as `parse_lines` does."""
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    if not line or line.isspace():
        return
    where = f"{path}: line {number:,}"
    try:
        text = line.decode(errors="replace" if invalid_utf8 == "replace" else "strict")
    except UnicodeDecodeError as error:
        if invalid_utf8 != "skip":
            raise InvalidUtf8Error(f"{where}: not UTF-8 at byte {error.start} of the line; {_REMEDY}") from None
        yield None
        return
    value = value_at(_parse(text, where), field, where)
    if value is None and invalid_utf8 == "skip":
        yield None
    elif isinstance(value, str):
        yield checked_document(value, where, invalid_utf8)
    else:
        remedy = NULL_REMEDY if value is None else "text_field must name text"
        raise CorpusError(f"{where}: {'.'.join(field)} is {_kind(value)}, not a string; {remedy}")


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{where}: not JSON at character {error.pos}: {error.msg}; each line must be a JSON object (is "
            "input_format right?)"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: JSON that cannot be read: {error}") from None


def value_at(value: Any, field: Sequence[str], where: str) -> Any:
    """The value of a nested field. Raises `CorpusError` if there is none."""
    for depth, name in enumerate(field):
        if not isinstance(value, dict) or name not in value:
            path = ".".join(field[: depth + 1])
            found = f"there are {names_of(value)}" if isinstance(value, dict) else f"found {_kind(value)} above it"
            raise CorpusError(f"{where}: no field {path!r} ({found}); name the one with the text as text_field")
        value = value[name]
    return value


def names_of(names: Iterable[str]) -> str:
    """The first of some names, to be told in an error."""
    names = list(names)
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "") if names else "none"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")


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
