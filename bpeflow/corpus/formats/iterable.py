"""Iterables of documents, passed by the caller instead of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.formats.records import RecordChunks, encode_document
from bpeflow.errors import InputTypeError

#: The name of an iterable wherever a file would have its own.
DOCUMENTS = "<documents>"


@dataclass(frozen=True, slots=True)
class DocumentIterable:
    """An iterable of documents (`str`, or `bytes` of UTF-8). It is read once, in the calling process."""

    documents: Iterable[str | bytes]

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers: none."""
        return 0

    def chunks(self, chunk_size: int, invalid_utf8: InvalidUtf8Policy) -> Iterator[StreamChunk]:
        """Yield the documents in chunks of records.

        Raises:
            InputTypeError: a document is neither `str` nor `bytes`. The message gives its number, from 0.
            InvalidUtf8Error: the policy is ``"error"`` and a document is not UTF-8.
        """
        chunks = RecordChunks(DOCUMENTS, chunk_size, 0)
        for number, document in enumerate(self.documents):
            if not isinstance(document, str | bytes):
                raise InputTypeError(
                    f"document {number} is a {type(document).__name__}; documents must be str, or bytes of UTF-8"
                )
            yield from chunks.add(encode_document(document, f"document {number}", invalid_utf8))
        yield from chunks.end()


def is_documents(value: object) -> bool:
    """Return whether an input is an iterable of documents: one that contains bytes, or is not a list of paths.

    Lists and tuples of strings are paths. Mappings and sets are refused elsewhere.
    """
    if isinstance(value, list | tuple):
        return any(isinstance(document, bytes) for document in value)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | dict | set | frozenset)
