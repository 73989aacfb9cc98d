"""Chunks of streams, which bring their bytes along."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A regular file, or a part of one, under the name by which it was found.

    ``size``: of the whole file, in bytes, when it was found.
    ``modified``: when it had last been changed then, in nanoseconds; 0 where nobody has looked.
    ``source``: the number of the source that it is of.
    ``begin``, ``end``: the part's place in it, at boundaries (`find_boundary`); up to the file's end if there is none.
    """

    path: Path
    size: int
    modified: int = 0
    source: int = 0
    begin: int = 0
    end: int | None = None

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return (self.size if self.end is None else self.end) - self.begin


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
