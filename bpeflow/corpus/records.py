"""Records: documents that are separate values (JSON Lines, Parquet, iterables) instead of text between separators.

The records of a chunk are stored as one text with `RECORD_END` after each. So the code that counts the documents of a
text counts records too, and as fast. Only a corpus with records imports this module (see `files.records`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from typing import Any

from bpeflow._util.machine import load_extra
from bpeflow._util.text import InvalidUtf8Policy, format_size, short_repr
from bpeflow.corpus.compression import MAGIC_BYTES, detect_compression
from bpeflow.corpus.documents import NOTHING, RECORD_END, DocumentStatistics, StreamChunk
from bpeflow.corpus.files import BYTE_ORDER_MARK, InputFile, convert_errors
from bpeflow.corpus.text_rules import FLATTEN_REMEDY, UTF8_REMEDY, Source, TextRules
from bpeflow.errors import BadRecordError, CorpusError, InputTypeError, InvalidUtf8Error
from bpeflow.pretokenize.cutter import LOOK_BEHIND, load_cutter

#: The remedy for records without text.
SKIP_REMEDY = "use bad_records='skip' to leave out such records"

#: Rows decoded at a time. Larger: a little faster. Smaller: less memory, which matters because a dictionary can make
#: every row as long as the longest.
_BATCH_ROWS = 128

#: The types of columns with text, as pyarrow names them.
_TEXT_TYPES = ("string", "large_string", "string_view", "binary", "large_binary")

#: Bytes read from the file at a time. Larger: fewer reads; smaller: less memory.
_BUFFER_BYTES = 1 << 20


#: Upper bound on the names that `format_names` lists. More: longer messages; fewer: the right name may be missing.
_SHOWN_NAMES = 8

#: What a record holds: its document in valid UTF-8, or the error of a record without one. `RecordBuffer` raises it, or
#: leaves the record out, as the policies say.
RecordText = bytes | BadRecordError | InvalidUtf8Error


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
    return BadRecordError(f"{where}: {'.'.join(source.text_field)} is {short_repr(value)}, not a string; {remedy}")


def _value_at(value: Any, field: Sequence[str], where: str) -> Any:
    """Return the value of a nested field. Raises `BadRecordError` if the field does not exist."""
    for depth, name in enumerate(field):
        if not isinstance(value, Mapping) or name not in value:
            path = ".".join(field[: depth + 1])
            found = (
                f"found: {format_names(value)}" if isinstance(value, Mapping) else f"its parent is {short_repr(value)}"
            )
            raise BadRecordError(
                f"{where}: no field {path!r} ({found}); set text_field to the field with the text, or {SKIP_REMEDY}"
            )
        value = value[name]
    return value


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

    def __init__(self, rules: TextRules) -> None:
        """Start with no documents. The rules say what happens to records without one."""
        self.data = bytearray()
        self.left_out = NOTHING
        self._keeps_utf8 = rules.invalid_utf8 != "skip"
        self._keeps_bad_records = rules.bad_records == "error"

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

    The last chunk accounts for all bytes that were read of the file; without a file, each accounts for its text.

    Args:
        texts: the documents.
        file: their file.
        chunk_size: bytes of text in a chunk, approximately.
        rules: what happens to records without a document, and how much of one the pattern may not divide.

    Raises:
        CorpusError: more of a document cannot be divided.
        BadRecordError: a record has no text, and the source does not skip such records.
        InvalidUtf8Error: a document is not UTF-8, and the rules do not skip such documents.
    """
    has_file = file.location != "iterable"
    offset, records = 0, RecordBuffer(rules)

    def chunk(bytes_read: int) -> StreamChunk:
        return StreamChunk(
            file.name, offset, len(records.data), False, file.source,
            data=records.data, holds="records", left_out=records.left_out, bytes_read=bytes_read,
        )  # fmt: skip

    for number, text in enumerate(texts, 1):
        if isinstance(text, bytes) and len(text) > rules.longest:
            _check_words(f"{file.name}: document {number:,}", text, rules)
        records.add(text)
        size = len(records.data)
        if size >= chunk_size:
            yield chunk(0 if has_file else size)
            offset, records = offset + size, RecordBuffer(rules)
    yield chunk(file.weight if has_file else len(records.data))


def _check_words(name: str, text: bytes, rules: TextRules) -> None:
    """Raise `CorpusError` if a document has an endless word, which counters and encoders would hold as a whole."""
    if (cutter := load_cutter(rules.pretokenizer)) is None:
        return
    longest = rules.longest
    for start in range(0, len(text) - longest, max(longest // 2, 1)):
        if cutter.find_cut(memoryview(text)[start : start + longest], LOOK_BEHIND) is None:
            raise CorpusError(
                f"{name} has more than {format_size(longest)} from byte {start:,} on that the pattern cannot divide; "
                "remove it, or look for damage. A memory_limit for training of 16 times its length admits such a text"
            )


# ---- JSON Lines ----


def parse_lines(chunk: StreamChunk, rules: TextRules) -> Iterator[tuple[int, RecordText]]:
    """Yield the number and the record of each line of a chunk, except lines of white space."""
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if line and not line.isspace():
            where = f"{chunk.path}: line {number:,}"
            yield number, _parse_line(line, where, rules.sources[chunk.source], rules.invalid_utf8)


def gather_lines(chunk: StreamChunk, rules: TextRules) -> RecordBuffer:
    """Return the documents of a chunk of lines. Raises as `record_chunks` does."""
    records = RecordBuffer(rules)
    for _, text in parse_lines(chunk, rules):
        records.add(text)
    return records


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


def iterable_texts(documents: Iterable[Any], rules: TextRules) -> Iterator[RecordText]:
    """Yield the documents of an iterable. Raises `InputTypeError` for one of another type, with its number, from 0."""
    for number, document in enumerate(documents):
        where = f"document {number}"
        if isinstance(document, str | bytes):
            yield encode_document(document, where, rules.invalid_utf8)
        elif document is None:
            yield BadRecordError(f"{where}: it is None; {SKIP_REMEDY}")
        elif isinstance(document, Mapping):
            yield text_of_record(document, where, rules.sources[0], rules.invalid_utf8)
        else:
            remedy = "; pass paths as a list" if isinstance(document, PathLike) else ""
            if isinstance(document, list | tuple):
                remedy = f"; {FLATTEN_REMEDY}"
            raise InputTypeError(
                f"{where} is {type(document).__name__}; documents must be str, bytes of UTF-8, or mappings with "
                f"the text in text_field{remedy}"
            )


# ---- Parquet ----


def row_groups(file: InputFile) -> list[InputFile]:
    """Return one stream for each row group of a file or a part of one, so that several can be read in parallel."""
    end = file.end
    if end is None:
        with _open(file) as parquet:
            end = parquet.num_row_groups
    count = end - file.begin
    ends = [file.weight * number // max(count, 1) for number in range(count + 1)]
    parts = enumerate(pairwise(ends), file.begin)
    return [replace(file, begin=group, end=group + 1, part_bytes=end - begin) for group, (begin, end) in parts]


def parquet_texts(file: InputFile, rules: TextRules) -> Iterator[RecordText]:
    """Yield the documents of a Parquet file, or the error of a row without one.

    Raises `CorpusError`, with the file, if it is damaged or has no column of strings of that name.
    """
    column = ".".join(rules.sources[file.source].text_field)
    with _open(file) as parquet:
        columns = [parquet.schema.column(number).path for number in range(len(parquet.schema))]
        if column not in columns:
            raise CorpusError(
                f"{file.name}: no column {column!r} (found: {format_names(columns)}); set text_field to the column "
                "with the text"
            )
        for group in range(file.begin, parquet.num_row_groups if file.end is None else file.end):
            row = sum(parquet.metadata.row_group(earlier).num_rows for earlier in range(group))
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[column]):
                for value in _values(batch, f"{file.name}: the column {column!r}"):
                    row += 1
                    where = f"{file.name}: row {row:,}"
                    if value is None:
                        yield BadRecordError(f"{where}: the text is null; {SKIP_REMEDY}")
                    else:
                        yield encode_document(value, where, rules.invalid_utf8)


def _values(batch: Any, column: str) -> Any:
    pyarrow = _load_pyarrow()
    array = batch.column(0)
    while pyarrow.types.is_struct(array.type):  # only the field with the text was read
        array = pyarrow.compute.struct_field(array, 0)
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if str(array.type) not in _TEXT_TYPES:
        raise CorpusError(f"{column} holds {array.type}, not strings; set text_field to one of strings")
    return array.cast(pyarrow.large_binary()).to_pylist()


@contextmanager
def _open(file: InputFile) -> Iterator[Any]:
    pyarrow = _load_pyarrow()
    with convert_errors(file), file.open() as stream:
        if compression := detect_compression(stream.read(MAGIC_BYTES)):
            raise CorpusError(
                f"{file.name}: Parquet inside {compression.name} cannot be read, because Parquet is read from its end; "
                "decompress the file (Parquet is compressed inside)"
            )
        stream.seek(0)
        try:
            with pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER_BYTES) as parquet:
                yield parquet
        except (pyarrow.ArrowException, EOFError, OSError) as error:
            by_system = isinstance(error, OSError) and (error.errno or file.location == "url")  # or the network
            if isinstance(error, MemoryError) or by_system:
                raise
            raise CorpusError(
                f"{file.name}: not Parquet, or damaged ({error}); check input_format, copy it again, or add memory"
            ) from error


def _load_pyarrow() -> Any:
    for module in ("pyarrow.compute", "pyarrow.parquet"):
        load_extra(module, "parquet", "Parquet files")
    return load_extra("pyarrow", "parquet", "Parquet files")
