"""Iterables of documents, passed by the caller instead of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from bpeflow._util.text import BadRecordsPolicy, InvalidUtf8Policy
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.formats.records import RecordChunks, RecordText, encode_document, text_of_record
from bpeflow.errors import InputTypeError

#: The name of an iterable wherever a file would have its own.
DOCUMENTS = "<documents>"


@dataclass(frozen=True, slots=True)
class DocumentIterable:
    """An iterable of documents. It is read once, in the calling process.

    Attributes:
        documents: the documents: each a `str`, `bytes` of UTF-8, or a mapping with the text in a field, such as the
            rows of a HuggingFace dataset.
        text_field: path of the field with the text in a mapping.
        bad_records: how to handle mappings without a string there, and None.
    """

    documents: Iterable[str | bytes | Mapping[str, Any]]
    text_field: tuple[str, ...] = ("text",)
    bad_records: BadRecordsPolicy = "error"

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers: none."""
        return 0

    def chunks(self, chunk_size: int, invalid_utf8: InvalidUtf8Policy) -> Iterator[StreamChunk]:
        """Yield the documents in chunks of records.

        Raises:
            InputTypeError: a document is of none of the known types. The message gives its number, from 0.
            BadRecordError: a document is None, or a mapping without the text, under ``bad_records: error``.
            InvalidUtf8Error: the policy is ``"error"`` and a document is not UTF-8.
        """
        chunks = RecordChunks(DOCUMENTS, chunk_size, 0)
        for number, document in enumerate(self.documents):
            yield from chunks.add(self._text(document, f"document {number}", invalid_utf8))
        yield from chunks.end()

    def _text(self, document: object, where: str, invalid_utf8: InvalidUtf8Policy) -> RecordText:
        if isinstance(document, str | bytes):
            return encode_document(document, where, invalid_utf8)
        if document is None or isinstance(document, Mapping):
            return text_of_record(document, self.text_field, where, invalid_utf8, self.bad_records)
        remedy = "; pass paths as a list" if isinstance(document, PathLike) else ""
        raise InputTypeError(
            f"{where} is a {type(document).__name__}; documents must be str, bytes of UTF-8, or mappings with the text "
            f"in text_field{remedy}"
        )


def split_off_documents(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], DocumentIterable | None]:
    """Split settings from the iterable of documents that their `input` may be.

    Returns the settings, and the iterable or None. Raises `InputTypeError` as `check_iterable` does.
    """
    check_iterable(values.get("input"))
    if not _is_documents(values.get("input"), values.get("text_field", "text")):
        return values, None
    return {**values, "input": DOCUMENTS}, DocumentIterable(values["input"])


def check_iterable(value: object) -> None:
    """Raise `InputTypeError` for what iterates over names instead of texts: tables, and datasets of several splits."""
    kind = type(value).__name__
    if hasattr(value, "columns"):
        raise InputTypeError(f"a {kind} is a table: pass its column with the text, such as table['text']")
    parts = list(value.values()) if isinstance(value, Mapping) and not {"paths", "path"} & value.keys() else []
    if parts and all(isinstance(part, list | tuple) for part in parts):
        raise InputTypeError(f"a {kind} of lists is a table: pass the list of texts in it, as iter(table['text'])")
    if parts and all(isinstance(part, Iterable) and not isinstance(part, str | list | tuple) for part in parts):
        raise InputTypeError(f"a {kind} holds several corpora: pass one of them, such as datasets['train']")


def _is_documents(value: object, text_field: object) -> bool:
    """Return whether an input is an iterable of documents.

    Lists and tuples hold paths and sources, unless they contain bytes, or mappings with the text in a field. Mappings
    and sets are refused elsewhere. All other iterables hold documents.
    """
    if isinstance(value, list | tuple):
        field = str(text_field).partition(".")[0]
        return any(isinstance(entry, bytes) or (isinstance(entry, Mapping) and field in entry) for entry in value)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping | set | frozenset)
