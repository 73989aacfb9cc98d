"""JSON Lines: dividing a stream into chunks of whole lines, and extracting the document from each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bpeflow._util.text import BadRecordsPolicy, InvalidUtf8Policy, format_size
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.formats.records import (
    SKIP_REMEDY,
    UTF8_REMEDY,
    RecordBuffer,
    Records,
    RecordText,
    text_of_record,
)
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.errors import BadRecordError, CorpusError, InvalidUtf8Error

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


def read_records(
    chunk: StreamChunk, field: Sequence[str], invalid_utf8: InvalidUtf8Policy, bad_records: BadRecordsPolicy
) -> Records:
    """Return the documents in a chunk of records or of JSON Lines. Lines of white space are ignored.

    Args:
        chunk: the chunk.
        field: path of the field with the text in the object of each line.
        invalid_utf8: how to handle documents that are not UTF-8.
        bad_records: how to handle lines that are not a JSON object with a string at `field`.

    Raises:
        BadRecordError: the policy is ``"error"`` and a line has no text. The message gives the number of the line.
        InvalidUtf8Error: the policy is ``"error"`` and a line is not UTF-8. The message gives the number of the line.
    """
    if chunk.holds == "records":
        return Records(chunk.data, chunk.skipped, chunk.bad_records, chunk.first_bad_record)
    records = RecordBuffer()
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
        for text in parse_line(line, number, chunk.path, field, invalid_utf8, bad_records):
            records.add(text)
    return records.take()


def parse_line(
    line: bytearray,
    number: int,
    path: str,
    field: Sequence[str],
    invalid_utf8: InvalidUtf8Policy,
    bad_records: BadRecordsPolicy,
) -> Iterator[RecordText]:
    """Yield what a line holds; yield nothing for a line of white space.

    Args:
        line: the line, with or without its end.
        number: number of the line, from 1.
        path: the file, for messages.
        field: path of the field with the text.
        invalid_utf8: as for `read_records`.
        bad_records: as for `read_records`.

    Raises:
        BadRecordError: as for `read_records`.
        InvalidUtf8Error: as for `read_records`.
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
    try:
        record = _parse(text, where)
    except BadRecordError as error:
        if bad_records == "error":
            raise
        yield error
        return
    yield text_of_record(record, field, where, invalid_utf8, bad_records)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" starting at")
        raise BadRecordError(
            f"{where}: not JSON at character {error.pos}: {problem}; each line must be a JSON object (is "
            f"input_format right?), or {SKIP_REMEDY}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"{where}: cannot parse the JSON: {error}") from None
