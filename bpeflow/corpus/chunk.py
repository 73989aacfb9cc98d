"""Chunks of streams, which bring their bytes along."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Chunk:
    """``length`` bytes of the file ``path`` from byte ``offset`` on; ``ends_file`` if they are its last.

    ``source``: the number of the source that the file is of.
    """

    path: str
    offset: int
    length: int
    ends_file: bool
    source: int = 0

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return self.length


#: Stands behind each record in the text of a chunk of records. No UTF-8 has this byte, so that no delimiter and no text
#: can be taken for it, and none for a delimiter's end.
RECORD_END = b"\xff"


@dataclass(frozen=True, slots=True)
class StreamChunk(Chunk):
    """A chunk of a stream, which brings its bytes along.

    Attributes:
        data: text; lines of JSON, each of them one document; or records, with `RECORD_END` behind each.
        holds: which of these.
        line: for lines, the number of the first.
        skipped: documents that the stream had here and that were left out for not being UTF-8.
        taken: bytes of the file, compressed as they are, that were read for it.
    """

    data: bytearray = field(default_factory=bytearray)
    holds: Literal["text", "jsonl", "records"] = "text"
    line: int = 0
    skipped: int = 0
    taken: int = 0

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return self.taken
