"""Chunks: the units in which a corpus is counted or encoded."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pickle import PickleBuffer
from typing import Any, Literal

from bpeflow.corpus.documents import NOTHING, DocumentStatistics


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file that is counted or encoded at once.

    Attributes:
        path: the file.
        offset: position of the first byte in the file.
        length: number of bytes.
        ends_file: whether these bytes are the last of the file.
        source: number of the source that the file belongs to.
    """

    path: str
    offset: int
    length: int
    ends_file: bool
    source: int = 0

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return self.length


@dataclass(frozen=True, slots=True)
class StreamChunk(Chunk):
    """A chunk of a stream. It carries its bytes, as a stream cannot be read again at an offset.

    Attributes:
        data: text; lines of JSON, one document each; or records, each followed by `RECORD_END`.
        holds: which of the three `data` is.
        line: number of the first line, if `data` is lines of JSON.
        left_out: statistics of the records that are not in `data`, because they are not UTF-8 or have no text.
        bytes_read: bytes read from the file for this chunk, before decompression.
    """

    data: bytearray = field(default_factory=bytearray)
    holds: Literal["text", "jsonl", "records"] = "text"
    line: int = 0
    left_out: DocumentStatistics = NOTHING
    bytes_read: int = 0

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return self.bytes_read

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle `data` out of band, so that it is not copied on its way to another process."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if protocol >= 5:
            values["data"] = PickleBuffer(self.data)
        return StreamChunk, tuple(values.values())
