"""Documents that the caller has at hand, in place of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.formats.records import RecordChunks, checked_document
from bpeflow.errors import InputTypeError

#: Stands where the names of files stand elsewhere.
DOCUMENTS = "<documents>"


@dataclass(frozen=True, slots=True)
class DocumentIterable:
    """An iterable of documents, `str` or `bytes` of UTF-8, which is gone through once, in the calling process."""

    documents: Iterable[str | bytes]

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files: there are none."""
        return 0

    def chunks(self, chunk_size: int, invalid_utf8: InvalidUtf8Policy) -> Iterator[StreamChunk]:
        """The documents in chunks. Raises `InputTypeError` for what is no document, with its number from 0."""
        chunks = RecordChunks(DOCUMENTS, chunk_size, 0)
        for number, document in enumerate(self.documents):
            if not isinstance(document, str | bytes):
                raise InputTypeError(
                    f"documents: number {number} is a {type(document).__name__}; each must be a str, or bytes of UTF-8"
                )
            yield from chunks.add(checked_document(document, f"document {number}", invalid_utf8))
        yield from chunks.end()


def is_documents(value: object) -> bool:
    """Whether a value that stands for a corpus is an iterable of documents: of bytes, or no list of paths.

    Lists and tuples of strings are paths; mappings and sets are refused elsewhere.
    """
    if isinstance(value, list | tuple):
        return any(isinstance(document, bytes) for document in value)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | dict | set | frozenset)
