"""The plan of segments: where a corpus is divided into parts that can be counted on their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bpeflow.corpus.files import InputFile, records
from bpeflow.corpus.split import find_boundary
from bpeflow.corpus.text_rules import TextRules


@dataclass(frozen=True, order=True)
class Position:
    """A position in a corpus: the index of an entry (a file or stream), and a byte offset in it."""

    entry: int = 0
    offset: int = 0


@dataclass(frozen=True)
class SegmentPlan:
    """The rule that divides a corpus into segments.

    Attributes:
        entries: the corpus. Files of text are divided, and Parquet files by row groups, which are the offsets of their
            positions; other streams are not.
        size: approximate bytes in a segment. Streams count by the size of their files.
        rules: say where a file may be divided.
    """

    entries: Sequence[InputFile]
    size: int
    rules: TextRules

    @property
    def end(self) -> Position:
        """Position of the end of the corpus."""
        return Position(len(self.entries), 0)

    def end_after(self, begin: Position) -> Position:
        """Return the end of the segment that begins at `begin`."""
        left = self.size
        for number in range(begin.entry, len(self.entries)):
            entry, offset = self.entries[number], begin.offset if number == begin.entry else 0
            if left <= 0:
                return Position(number, 0)
            if entry.plain and entry.weight - offset > left:
                end = find_boundary(entry, offset + left, self.rules)
                return Position(number, end) if end < entry.weight else Position(number + 1, 0)
            if entry.format == "parquet" and (offset or entry.weight > left):
                for group, part in enumerate(_row_groups(entry)[offset:], offset):
                    if left <= 0:
                        return Position(number, group)
                    left -= part.weight
            else:
                left -= entry.weight - offset
        return self.end

    def parts(self) -> Iterator[list[InputFile]]:
        """Yield the entries of each segment."""
        position = Position()
        while position < self.end:
            end = self.end_after(position)
            yield self.entries_of(position, end)
            position = end

    def entries_of(self, begin: Position, end: Position) -> list[InputFile]:
        """Return the entries between two positions. A file that is only partly between them is cut."""
        parts: list[InputFile] = []
        for number in range(begin.entry, min(end.entry + 1, len(self.entries))):
            entry = self.entries[number]
            first = begin.offset if number == begin.entry else 0
            last = end.offset if number == end.entry else None
            if first or last:
                parts += _part(entry, first, last)
            elif last is None:
                parts.append(entry)
        return parts


@dataclass(frozen=True)
class SegmentPart:
    """A part of the corpus that is to be counted as a segment.

    Attributes:
        number: number of the segment.
        begin: position where it begins.
        end: position where it ends.
        entries: the files and streams between the two.
    """

    number: int
    begin: Position
    end: Position
    entries: list[InputFile]

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return sum(entry.weight for entry in self.entries)

    def absolute(self) -> SegmentPart:
        """Return the same part with absolute paths."""
        return replace(self, entries=[entry.absolute() for entry in self.entries])

    def __str__(self) -> str:
        """Return its place in the corpus."""
        names = [file.name for entry in self.entries for file in entry.files]
        return f"segment {self.number} ({len(names):,} files from {', '.join(names[:1])} on)"


@lru_cache(maxsize=4)
def _row_groups(file: InputFile) -> list[InputFile]:
    groups: list[InputFile] = records().row_groups(file)
    return groups


def _part(file: InputFile, first: int, last: int | None) -> list[InputFile]:
    """Return the part of a file from one byte or row group to another, if it has any."""
    if file.plain:
        end = file.weight if last is None else last
        size = end - first
    else:
        groups = _row_groups(file)[first:last]
        end, size = first + len(groups), sum(group.weight for group in groups)
    return [replace(file, begin=first, end=end, part_bytes=size)] if first < end else []
