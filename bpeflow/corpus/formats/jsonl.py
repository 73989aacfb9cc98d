"""JSON Lines: dividing a stream into chunks of whole lines, and extracting the document from each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bpeflow._util.text import InvalidUtf8Policy, format_size
from bpeflow.corpus.chunk import RECORD_END, StreamChunk
from bpeflow.corpus.formats.records import NULL_REMEDY, UTF8_REMEDY, Records, encode_document, format_names
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.errors import CorpusError, InvalidUtf8Error

#: The byte order mark, which may begin the first line.
_BOM = b"\xef\xbb\xbf"


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
    for block in blocks:
        data += block
        if len(data) < chunk_size:
            continue
        end = data.rfind(b"\n", searched) + 1
        if not end:
            searched = len(data)
            if len(data) > max(longest, chunk_size):
                raise CorpusError(
                    f"{blocks.name}: line {line:,} has more than {format_size(longest)}, and memory_limit leaves no "
                    "room for more; raise memory_limit, or remove the line"
                )
            continue
        rest = data[end:]
        del data[end:]
        yield StreamChunk(
            blocks.name, offset, end, False, source,
            data=data, holds="jsonl", line=line, bytes_read=blocks.bytes_read - reported,
        )  # fmt: skip
        line += data.count(b"\n")
        offset, reported, data, searched = offset + end, blocks.bytes_read, rest, 0
    if data:
        yield StreamChunk(
            blocks.name, offset, len(data), True, source,
            data=data, holds="jsonl", line=line, bytes_read=blocks.bytes_read - reported,
        )  # fmt: skip


def parse_lines(chunk: StreamChunk, field: Sequence[str], invalid_utf8: InvalidUtf8Policy) -> Records:
    """Return the documents in a chunk of JSON Lines. Lines of white space are ignored.

    Args:
        chunk: the chunk.
        field: path of the field with the text in the object of each line.
        invalid_utf8: how to handle documents that are not UTF-8; ``"skip"`` skips documents that are null, too.

    Raises:
        CorpusError: a line is not a JSON object with a string at `field`. The message gives the number of the line.
        InvalidUtf8Error: the policy is ``"error"`` and a line is not UTF-8. The message gives the number of the line.
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
    """Yield the document of a line, or None if it is skipped; yield nothing for a line of white space.

    Args:
        line: the line, with or without its end.
        number: number of the line, from 1.
        path: the file, for messages.
        field: path of the field with the text.
        invalid_utf8: as for `parse_lines`.

    Raises:
        CorpusError: as for `parse_lines`.
        InvalidUtf8Error: as for `parse_lines`.
    """
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    if not line or line.isspace():
        return
    where = f"{path}: line {number:,}"
    try:
        text = line.decode(errors="replace" if invalid_utf8 == "replace" else "strict")
    except UnicodeDecodeError as error:
        if invalid_utf8 != "skip":
            raise InvalidUtf8Error(f"{where}: not UTF-8 at byte {error.start} of the line; {UTF8_REMEDY}") from None
        yield None
        return
    value = value_at(_parse(text, where), field, where)
    if value is None and invalid_utf8 == "skip":
        yield None
    elif isinstance(value, str):
        yield encode_document(value, where, invalid_utf8)
    else:
        remedy = NULL_REMEDY if value is None else "text_field must name a field of strings"
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
        raise CorpusError(f"{where}: cannot parse the JSON: {error}") from None


def value_at(value: Any, field: Sequence[str], where: str) -> Any:
    """Return the value of a nested field. Raises `CorpusError` if the field does not exist."""
    for depth, name in enumerate(field):
        if not isinstance(value, dict) or name not in value:
            path = ".".join(field[: depth + 1])
            found = f"found: {format_names(value)}" if isinstance(value, dict) else f"its parent is {_kind(value)}"
            raise CorpusError(f"{where}: no field {path!r} ({found}); set text_field to the field with the text")
        value = value[name]
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")
