"""Parquet: the strings of one column, row group by row group."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bpeflow._util.extras import load_extra
from bpeflow._util.memory import check_address_space
from bpeflow.corpus.formats.compression import MAGIC_BYTES, compression_of
from bpeflow.corpus.formats.records import names_of
from bpeflow.corpus.formats.stream import StreamFile, reading
from bpeflow.errors import CorpusError

#: Rows that are decoded at a time. A dictionary can make each of them as long as the longest, so this many of them are
#: what is in memory; with more, it is a little faster.
_ROWS = 128

#: Bytes that are read at a time.
_BUFFER = 1 << 20

#: Address space without which the import of pyarrow is not even begun: with less than 180 MB, pyarrow 26 crashes in it.
_LIBRARY_SPACE = 1 << 28


def row_groups(file: StreamFile) -> list[StreamFile]:
    """The file, row group by row group, so that several can be read at once."""
    with _opened(file) as parquet:
        groups = parquet.num_row_groups
    size = file.size or 0
    sizes = [size * (group + 1) // groups - size * group // groups for group in range(groups)]
    return [replace(file, row_groups=(group,), size=part) for group, part in enumerate(sizes)]


def read_rows(file: StreamFile, column: Sequence[str]) -> Iterator[tuple[int, bytes | None]]:
    """The number of each row, from 1, and the bytes of its string in a column, which may be nested; None for a null.

    Raises `CorpusError`, which names the file, for one that is damaged or has no such column of strings.
    """
    pyarrow = _library()
    with _opened(file) as parquet:
        _check_column(parquet.schema_arrow, column, file.name, pyarrow)
        groups = range(parquet.num_row_groups) if file.row_groups is None else file.row_groups
        for group in groups:
            row = sum(parquet.metadata.row_group(earlier).num_rows for earlier in range(group))
            for batch in parquet.iter_batches(_ROWS, row_groups=[group], columns=[".".join(column)]):
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
    kind: Any
    fields = {field.name: field.type for field in schema}
    kind = fields.get(path)
    if kind is None:
        for depth, part in enumerate(column):
            if part not in fields:
                raise CorpusError(
                    f"{name}: no column {'.'.join(column[: depth + 1])!r} (there are {names_of(fields)}); name the one "
                    "with the text as text_column"
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
        raise CorpusError(f"{name}: the column {path!r} holds {kind}, not strings; name one with text as text_column")


@contextmanager
def _opened(file: StreamFile) -> Iterator[Any]:
    pyarrow = _library()
    with reading(file), file.open() as stream:
        begin = stream.read(MAGIC_BYTES)
        if compression := compression_of(begin):
            raise CorpusError(
                f"{file.name}: Parquet inside {compression.name}, which cannot be read from its end, as Parquet has to "
                "be; decompress the file (Parquet is compressed inside)"
            )
        stream.seek(0)
        try:
            with pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER) as parquet:
                yield parquet
        except (pyarrow.ArrowException, EOFError) as error:
            if isinstance(error, MemoryError) or "launch worker thread" in str(error):
                raise MemoryError(str(error)) from error
            raise CorpusError(f"{file.name}: not Parquet, or damaged ({error}); copy it again") from error


def _library() -> Any:
    if "pyarrow" not in sys.modules:
        check_address_space(_LIBRARY_SPACE)
    for module in ("pyarrow.compute", "pyarrow.parquet"):
        load_extra(module, "parquet", "Parquet files")
    return load_extra("pyarrow", "parquet", "Parquet files")
