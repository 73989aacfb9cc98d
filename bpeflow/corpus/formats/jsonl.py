"""JSON Lines: dividing a stream into chunks of whole lines, and extracting the document from each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bpeflow._util.text import format_size
from bpeflow.corpus.chunk import StreamChunk
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.corpus.formats.records import (
    SKIP_REMEDY,
    UTF8_REMEDY,
    RecordBuffer,
    RecordText,
    text_of_record,
)
from bpeflow.corpus.formats.stream import Blocks
from bpeflow.corpus.text_rules import TextRules
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


def read_lines(chunk: StreamChunk, rules: TextRules) -> tuple[bytearray, DocumentStatistics]:
    """Return the documents in a chunk of lines, each followed by `RECORD_END`, and statistics of the other records.

    Raises:
        BadRecordError: the policy is ``"error"`` and a line is not a JSON object with a string in the field of its
            source. The message gives the number of the line.
        InvalidUtf8Error: the policy is ``"error"`` and a line is not UTF-8. The message gives the number of the line.
    """
    records = RecordBuffer()
    for text in parse_lines(chunk, rules):
        records.add(text)
    return records.data, records.left_out


def parse_lines(chunk: StreamChunk, rules: TextRules) -> Iterator[RecordText]:
    """Yield the record of each line of a chunk, except lines of white space. Raises as `read_lines` does."""
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.line):
        yield from parse_line(line, number, chunk, rules)


def parse_line(line: bytearray, number: int, chunk: StreamChunk, rules: TextRules) -> Iterator[RecordText]:
    """Yield the record of a line of a chunk, given its number from 1; yield nothing for a line of white space.

    Raises as `read_lines` does.
    """
    source = rules.sources[chunk.source]
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    if not line or line.isspace():
        return
    where = f"{chunk.path}: line {number:,}"
    try:
        text = line.decode(errors="replace" if rules.invalid_utf8 == "replace" else "strict")
    except UnicodeDecodeError as error:
        if rules.invalid_utf8 != "skip":
            raise InvalidUtf8Error(f"{where}: not UTF-8 at byte {error.start} of the line; {UTF8_REMEDY}") from None
        yield None
        return
    try:
        record = _parse(text, where)
    except BadRecordError as error:
        if source.bad_records == "error":
            raise
        yield error
        return
    yield text_of_record(record, where, source, rules.invalid_utf8)


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
