"""Parquet: reading the strings of one column, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

from bpeflow._util.extras import load_extra
from bpeflow.corpus.compression import detect_compression
from bpeflow.corpus.files import START_BYTES, InputFile, convert_errors, is_json_lines
from bpeflow.corpus.records import format_names
from bpeflow.errors import CorpusError

#: Rows decoded at a time. Larger: a little faster. Smaller: less memory, which matters because a dictionary can make
#: every row as long as the longest.
_BATCH_ROWS = 128

#: Bytes read from the file at a time. Larger: fewer reads; smaller: less memory.
_BUFFER_BYTES = 1 << 20


def row_groups(file: InputFile) -> list[InputFile]:
    """Return one stream for each row group of a file or a part of one, so that several can be read in parallel."""
    groups = file.row_groups
    if groups is None:
        with _open(file) as parquet:
            groups = tuple(range(parquet.num_row_groups))
    ends = [file.weight * number // max(len(groups), 1) for number in range(len(groups) + 1)]
    parts = (end - begin for begin, end in pairwise(ends))
    return [replace(file, row_groups=(group,), row_group_bytes=part) for group, part in zip(groups, parts, strict=True)]


def read_rows(file: InputFile, column: Sequence[str]) -> Iterator[tuple[int, bytes | None]]:
    """Read one column, which may be nested.

    Yields:
        The number of each row, from 1, and its string as UTF-8 bytes; None for a null.

    Raises:
        CorpusError: the file is damaged or has no such column of strings. The message names the file.
    """
    pyarrow = _load_pyarrow()
    with _open(file) as parquet:
        _check_column(parquet.schema_arrow, column, file.name, pyarrow)
        groups = range(parquet.num_row_groups) if file.row_groups is None else file.row_groups
        for group in groups:
            row = sum(parquet.metadata.row_group(earlier).num_rows for earlier in range(group))
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[".".join(column)]):
                for value in _values(batch, column, pyarrow):
                    row += 1
                    yield row, value


def _values(batch: Any, column: Sequence[str], pyarrow: Any) -> Any:
    array = batch.column(0)
    for name in column[1:] if len(batch.schema.names[0].split(".")) != len(column) else ():
        array = pyarrow.compute.struct_field(array, name)
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pyarrow.large_binary()).to_pylist()


def _check_column(schema: Any, column: Sequence[str], name: str, pyarrow: Any) -> None:
    path = ".".join(column)
    fields = {field.name: field.type for field in schema}
    kind: Any = fields.get(path)
    if kind is None:
        for depth, part in enumerate(column):
            if part not in fields:
                raise CorpusError(
                    f"{name}: no column {'.'.join(column[: depth + 1])!r} (found: {format_names(fields)}); set "
                    "text_column to the column with the text"
                )
            kind = fields[part]
            fields = {f.name: f.type for f in kind} if pyarrow.types.is_struct(kind) else {}
    types = pyarrow.types
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if not any(
        is_text(inner)
        for is_text in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_string_view,
        )
    ):
        raise CorpusError(f"{name}: the column {path!r} holds {kind}, not strings; set text_column to one of strings")


@contextmanager
def _open(file: InputFile) -> Iterator[Any]:
    pyarrow = _load_pyarrow()
    with convert_errors(file), file.open() as stream:
        start = stream.read(START_BYTES)
        if compression := detect_compression(start):
            raise CorpusError(
                f"{file.name}: Parquet inside {compression.name} cannot be read, because Parquet is read from its end; "
                "decompress the file (Parquet is compressed inside)"
            )
        if is_json_lines(start):
            raise CorpusError(f"{file.name}: not Parquet, but JSON Lines: use input_format: jsonl, or name it .jsonl")
        stream.seek(0)
        try:
            with pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER_BYTES) as parquet:
                yield parquet
        except (pyarrow.ArrowException, EOFError) as error:
            if isinstance(error, MemoryError):
                raise
            raise CorpusError(
                f"{file.name}: not Parquet, or damaged ({error}); copy it again, or add memory"
            ) from error


def _load_pyarrow() -> Any:
    for module in ("pyarrow.compute", "pyarrow.parquet"):
        load_extra(module, "parquet", "Parquet files")
    return load_extra("pyarrow", "parquet", "Parquet files")
