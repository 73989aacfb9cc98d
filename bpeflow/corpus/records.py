"""Records: documents that are separate values (JSON Lines, Parquet, iterables) instead of text between separators.

The records of a chunk are stored as one text with `RECORD_END` after each. So the code that counts the documents of a
text counts records too, and as fast. A `DocumentIterable` has the records that a caller passes instead of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

from bpeflow._util.text import InvalidUtf8Policy, format_size, short_repr
from bpeflow.corpus.documents import NOTHING, RECORD_END, DocumentStatistics, StreamChunk
from bpeflow.corpus.files import Blocks, InputFile
from bpeflow.corpus.text_rules import Source, TextRules
from bpeflow.errors import BadRecordError, CorpusError, InputTypeError, InvalidUtf8Error

#: The remedy for documents that are not UTF-8.
UTF8_REMEDY = "use invalid_utf8: replace to put U+FFFD there, or invalid_utf8: skip to leave out such documents"

#: The remedy for records without text.
SKIP_REMEDY = "use bad_records: skip to leave out such records"

#: The byte order mark, which may begin the first line.
_BOM = b"\xef\xbb\xbf"

#: Upper bound on the names that `format_names` lists. More: longer messages; fewer: the right name may be missing.
_SHOWN_NAMES = 8

#: What a record holds: its document in valid UTF-8, or the error of a record without one. `RecordBuffer` raises it, or
#: leaves the record out, as the policies say.
RecordText = bytes | BadRecordError | InvalidUtf8Error

#: The name of an iterable wherever a file would have its own.
DOCUMENTS = "<documents>"


def encode_document(document: str | bytes, where: str, invalid_utf8: InvalidUtf8Policy) -> RecordText:
    """Return a document as valid UTF-8; or the error that it is not, which begins with `where`."""
    try:
        if isinstance(document, str):
            return document.encode()
        if not document.isascii():
            document.decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        if invalid_utf8 == "replace":
            return _replace_invalid(document).encode()
        unit = "character" if isinstance(error, UnicodeEncodeError) else "byte"
        return InvalidUtf8Error(
            f"{where}: not UTF-8 at {unit} {error.start} of the document ({error.reason}); {UTF8_REMEDY}"
        )
    return document


def text_of_record(record: Any, where: str, source: Source, invalid_utf8: InvalidUtf8Policy) -> RecordText:
    """Return the text of a record, usually a mapping, in the field of its source; or the error that there is none.

    The error begins with `where`, the position of the record.
    """
    try:
        value = _value_at(record, source.text_field, where)
    except BadRecordError as error:
        return error
    if isinstance(value, str):
        return encode_document(value, where, invalid_utf8)
    remedy = SKIP_REMEDY if value is None else f"text_field must name a field of strings, or {SKIP_REMEDY}"
    return BadRecordError(f"{where}: {'.'.join(source.text_field)} is {_kind(value)}, not a string; {remedy}")


def _value_at(value: Any, field: Sequence[str], where: str) -> Any:
    """Return the value of a nested field. Raises `BadRecordError` if the field does not exist."""
    for depth, name in enumerate(field):
        if not isinstance(value, Mapping) or name not in value:
            path = ".".join(field[: depth + 1])
            found = f"found: {format_names(value)}" if isinstance(value, Mapping) else f"its parent is {_kind(value)}"
            raise BadRecordError(
                f"{where}: no field {path!r} ({found}); set text_field to the field with the text, or {SKIP_REMEDY}"
            )
        value = value[name]
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")


def _replace_invalid(document: str | bytes) -> str:
    if isinstance(document, bytes):
        return document.decode(errors="replace")
    return document.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def format_names(names: Iterable[str]) -> str:
    """Format the first few names of fields or columns for a message."""
    names = list(names)
    return (
        ", ".join(map(short_repr, names[:_SHOWN_NAMES])) + (", …" if len(names) > _SHOWN_NAMES else "")
        if names
        else "none"
    )


class RecordBuffer:
    """Collects the documents of records.

    Attributes:
        data: the documents, each followed by `RECORD_END`.
        left_out: statistics of the records without a document.
    """

    def __init__(self, rules: TextRules, source: int) -> None:
        """Start with no documents. The rules and the source say what happens to records without one."""
        self.data = bytearray()
        self.left_out = NOTHING
        self._keeps_utf8 = rules.invalid_utf8 != "skip"
        self._keeps_bad_records = rules.sources[source].bad_records == "error"

    def add(self, text: RecordText) -> None:
        """Add a document, or count a record without one. Raises its error unless such records are skipped."""
        if isinstance(text, bytes):
            self.data += text
            self.data += RECORD_END
        elif isinstance(text, InvalidUtf8Error):
            if self._keeps_utf8:
                raise text
            self.left_out += DocumentStatistics(documents=1, skipped_documents=1)
        else:
            if self._keeps_bad_records:
                raise text
            self.left_out += DocumentStatistics(bad_records=1, first_bad_record=str(text))


def record_chunks(
    texts: Iterable[RecordText], file: InputFile, chunk_size: int, rules: TextRules
) -> Iterator[StreamChunk]:
    """Gather whole documents into chunks of about `chunk_size` bytes.

    The last chunk stands for all bytes that were read of the file; without a file, each stands for its text.

    Args:
        texts: the documents.
        file: their file.
        chunk_size: bytes of text in a chunk, approximately.
        rules: what happens to records without a document.

    Raises:
        BadRecordError: a record has no text, and the source does not skip such records.
        InvalidUtf8Error: a document is not UTF-8, and the rules do not skip such documents.
    """
    has_file = file.location != "iterable"
    offset, records = 0, RecordBuffer(rules, file.source)

    def chunk(bytes_read: int) -> StreamChunk:
        return StreamChunk(
            file.name, offset, len(records.data), False, file.source,
            data=records.data, holds="records", left_out=records.left_out, bytes_read=bytes_read,
        )  # fmt: skip

    for text in texts:
        records.add(text)
        size = len(records.data)
        if size >= chunk_size:
            yield chunk(0 if has_file else size)
            offset, records = offset + size, RecordBuffer(rules, file.source)
    yield chunk(file.weight if has_file else len(records.data))


# ---- JSON Lines ----


def cut_lines(blocks: Blocks, chunk_size: int, longest: int, source: int = 0) -> Iterator[StreamChunk]:
    """Divide a stream into chunks of whole lines.

    Args:
        blocks: the stream.
        chunk_size: bytes in a chunk, approximately.
        longest: upper bound on the bytes of a line, if larger than `chunk_size`.
        source: number of the source that the stream belongs to.

    Raises:
        CorpusError: a line is longer than the upper bound.
    """
    data = bytearray()
    offset = reported = searched = 0  # `reported`: bytes read for the chunks yielded so far
    line = 1

    def chunk(ends_file: bool) -> StreamChunk:
        return StreamChunk(
            blocks.name, offset, len(data), ends_file, source,
            data=data, holds="jsonl", line=line, bytes_read=blocks.bytes_read - reported,
        )  # fmt: skip

    for block in blocks:
        data += block
        if len(data) < chunk_size:
            continue
        end = data.rfind(b"\n", searched) + 1
        if end:
            rest = data[end:]
            del data[end:]
            yield chunk(ends_file=False)
            line += data.count(b"\n")
            offset, reported, data, searched = offset + end, blocks.bytes_read, rest, 0
        elif len(data) > max(longest, chunk_size):
            raise CorpusError(
                f"{blocks.name}: line {line:,} has more than {format_size(longest)}, and memory_limit leaves no room "
                "for more; raise memory_limit, or remove the line"
            )
        else:
            searched = len(data)
    if data:
        yield chunk(ends_file=True)


def parse_lines(chunk: StreamChunk, rules: TextRules) -> Iterator[tuple[int, RecordText]]:
    """Yield the number and the record of each line of a chunk, except lines of white space."""
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
        if number == 1:
            line = line.removeprefix(_BOM)
        if line and not line.isspace():
            where = f"{chunk.path}: line {number:,}"
            yield number, _parse_line(line, where, rules.sources[chunk.source], rules.invalid_utf8)


def _parse_line(line: bytearray, where: str, source: Source, invalid_utf8: InvalidUtf8Policy) -> RecordText:
    try:
        record = json.loads(line.decode(errors="replace" if invalid_utf8 == "replace" else "strict"))
    except UnicodeDecodeError as error:
        return InvalidUtf8Error(f"{where}: not UTF-8 at byte {error.start} of the line; {UTF8_REMEDY}")
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" starting at")
        return BadRecordError(
            f"{where}: not JSON at character {error.pos}: {problem}; each line must be a JSON object (is "
            f"input_format right?), or {SKIP_REMEDY}"
        )
    except (ValueError, RecursionError) as error:
        return BadRecordError(f"{where}: cannot parse the JSON: {error}")
    return text_of_record(record, where, source, invalid_utf8)


# ---- iterables ----


@dataclass(frozen=True, slots=True)
class DocumentIterable:
    """An iterable of documents. It is read once, in the calling process.

    Attributes:
        documents: the documents: each a `str`, `bytes` of UTF-8, or a mapping with the text in a field, such as the
            rows of a HuggingFace dataset.
    """

    documents: Iterable[str | bytes | Mapping[str, Any]]
    plain: ClassVar[bool] = False

    @property
    def files(self) -> tuple[InputFile, ...]:
        """What stands for it where an entry of a corpus has files."""
        return (InputFile(DOCUMENTS, None, "jsonl", "iterable"),)

    @property
    def source(self) -> int:
        """Number of the source."""
        return 0

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers: none."""
        return 0

    @property
    def main_process_only(self) -> bool:
        """Whether only the calling process can read it."""
        return True

    def absolute(self) -> DocumentIterable:
        """Return it, which has no path."""
        return self

    def texts(self, rules: TextRules) -> Iterator[RecordText]:
        """Yield the documents. Raises `InputTypeError` for one of another type, with its number, from 0."""
        for number, document in enumerate(self.documents):
            where = f"document {number}"
            if isinstance(document, str | bytes):
                yield encode_document(document, where, rules.invalid_utf8)
            elif document is None or isinstance(document, Mapping):
                yield text_of_record(document, where, rules.sources[0], rules.invalid_utf8)
            else:
                remedy = "; pass paths as a list" if isinstance(document, PathLike) else ""
                raise InputTypeError(
                    f"{where} is a {type(document).__name__}; documents must be str, bytes of UTF-8, or mappings with "
                    f"the text in text_field{remedy}"
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
    """Return whether an input is an iterable of documents. Mappings and sets are refused elsewhere."""
    # Lists and tuples hold paths and sources, unless they contain bytes, or mappings with the text in a field.
    if isinstance(value, list | tuple):
        field = str(text_field).partition(".")[0]
        return any(isinstance(entry, bytes) or (isinstance(entry, Mapping) and field in entry) for entry in value)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping | set | frozenset)
