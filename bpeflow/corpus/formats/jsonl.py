"""Records: documents that are values of their own, not text between separators.

They travel as one text with `RECORD_END` behind each, so that what counts documents in text counts them as fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.formats.records import _REMEDY, NULL_REMEDY, Records, checked_document, names_of
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.errors import CorpusError, InvalidUtf8Error


def cut_lines(blocks: Blocks, chunk_size: int, longest: int, source: int = 0) -> Iterator[StreamChunk]:
    """Divide a stream into chunks of whole lines. Raises `CorpusError` for a line of more than ``longest`` bytes."""
    data = bytearray()
    offset = taken = searched = 0
    line = 1
    for block in blocks:
        data += block
        if len(data) < chunk_size:
            continue
        end = data.rfind(b"\n", searched) + 1
        if not end:
            searched = len(data)
            if len(data) > max(longest, chunk_size):
                raise CorpusError(
                    f"{blocks.name}: line {line:,} has more than {longest:,} bytes, for which memory_limit leaves no "
                    "room; raise it, or leave the line out"
                )
            continue
        rest = data[end:]
        del data[end:]
        yield StreamChunk(
            blocks.name, offset, end, False, source, data=data, holds="jsonl", line=line, taken=blocks.taken - taken
        )
        line += data.count(b"\n")
        offset, taken, data, searched = offset + end, blocks.taken, rest, 0
    if data:
        yield StreamChunk(
            blocks.name, offset, len(data), True, source,
            data=data, holds="jsonl", line=line, taken=blocks.taken - taken,
        )  # fmt: skip


_BOM = b"\xef\xbb\xbf"


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


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")
