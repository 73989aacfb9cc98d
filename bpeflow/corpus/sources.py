"""The sources of a corpus, from its settings: what is known of each, and its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.corpus.formats.iterable import DOCUMENTS, DocumentIterable
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from bpeflow.config import CountSettings  # pydantic, which workers do without


@dataclass(frozen=True, slots=True)
class Source:
    """What there is to know of a source when its files have been found.

    Attributes:
        name: as it is reported.
        weight: how often each of its documents counts.
        sample: which of its documents to take; None for all.
        text_field: for JSON Lines, the way to the text.
        text_column: for Parquet, the way to the text.
    """

    name: str = "input"
    weight: int = 1
    sample: Sample | None = None
    text_field: tuple[str, ...] = ("text",)
    text_column: tuple[str, ...] = ("text",)


_SIZE_BITS = 48


@dataclass(frozen=True, slots=True)
class Sample:
    """How to draw it.

    Every document has a number drawn by the seed and by its place (which file of the source, which document of the
    file). In ascending order of these numbers documents are taken as long as all of them together fit into
    ``max_bytes``. So a sample does not depend on chunks or workers, nor on the form of the files.
    """

    max_bytes: int
    seed: int = 0

    def number(self, file: int, document: int) -> int:
        """The number of a document, of 64 bits."""
        return int.from_bytes(blake2b(b"%d %d %d" % (self.seed, file, document), digest_size=8).digest(), "big")

    def threshold(self, documents: Iterable[tuple[int, int]]) -> int:
        """The number from which on documents are left out, from the numbers and sizes of all of them.

        In memory are those that are taken only, in a few dozen bytes each.
        """
        threshold = 1 << 64
        taken: list[int] = []  # number and size in one integer, negative: the greatest number is the heap's first
        total = 0
        for number, size in documents:
            if number >= threshold:
                continue
            heappush(taken, -(number << _SIZE_BITS | size))
            total += size
            while total > self.max_bytes:
                last = -heappop(taken)
                threshold = last >> _SIZE_BITS
                total -= last & ((1 << _SIZE_BITS) - 1)
        return threshold


CorpusEntry = CorpusFile | StreamTask | DocumentIterable


@dataclass(frozen=True)
class Corpus:
    """What there is to count.

    Attributes:
        sources: what is known of each source, by their numbers.
        entries: the files, of all sources.
    """

    sources: list[Source]
    entries: list[CorpusEntry] = field(repr=False)

    @property
    def streams(self) -> list[StreamTask]:
        """What is read as a stream."""
        return [entry for entry in self.entries if isinstance(entry, StreamTask)]

    @property
    def main_process_only(self) -> bool:
        """Whether some of it can be read in the calling process only: its standard input, or an iterable."""
        return any(
            isinstance(entry, DocumentIterable) or (isinstance(entry, StreamTask) and entry.main_process_only)
            for entry in self.entries
        )

    @property
    def known_bytes(self) -> int:
        """The sizes of all files together, as far as they are known; compressed as they are."""
        return sum(entry.weight for entry in self.entries)

    def file_counts(self) -> list[int]:
        """How many files each source has."""
        counts = [0] * len(self.sources)
        for entry in self.entries:
            if isinstance(entry, CorpusFile):
                counts[entry.source] += 1
            elif isinstance(entry, StreamTask):
                counts[entry.files[0].source] += len(entry.files)
        return counts


def stream_parts(entries: Iterable[CorpusEntry]) -> int:
    """How many streams can be read at once, at most. (A Parquet file has nobody knows how many row groups.)"""
    tasks = [entry for entry in entries if isinstance(entry, StreamTask)]
    return sum(100 if task.files[0].format == "parquet" else 1 for task in tasks)


def longest_first(entries: Iterable[CorpusEntry]) -> list[CorpusEntry]:
    """Entries in an order in which the longest streams begin early: they take longest. Files come after them."""
    return sorted(entries, key=lambda entry: -1 - entry.weight if isinstance(entry, StreamTask) else 0)


def find_corpus(settings: CountSettings, documents: DocumentIterable | None = None) -> Corpus:
    """Find the files of all sources. Raises `CorpusError` for what is missing or unreadable, `ConfigError`."""
    if documents is not None:
        return Corpus([Source()], [documents])
    sources: list[Source] = []
    entries: list[CorpusEntry] = []
    for number, source in enumerate(settings.all_sources):
        rules = InputRules(
            exclude=(*settings.exclude, *source.exclude),
            format=source.format or settings.input_format,
            source=number,
            sampled=source.max_bytes is not None,
        )
        try:
            entries += find_inputs(source.paths, rules)
        except CorpusError as error:
            raise CorpusError(f"source {source.name}: {error}" if settings.sources else str(error)) from error
        sources.append(
            Source(
                name=source.name,
                weight=source.weight,
                sample=None if source.max_bytes is None else Sample(int(source.max_bytes), source.seed),
                text_field=_path(source.text_field or settings.text_field),
                text_column=_path(source.text_column or settings.text_column),
            )
        )
    _check_stdin(entries)
    return Corpus(sources, entries)


def _path(names: str) -> tuple[str, ...]:
    return tuple(names.split("."))


def _reads_stdin(task: StreamTask) -> bool:
    return any(file.place == "stdin" for file in task.files)


def _check_stdin(entries: list[CorpusEntry]) -> None:
    """Refuse what standard input, which can be read once, cannot give."""
    readers = [e for e in entries if isinstance(e, StreamTask) and _reads_stdin(e)]
    if len(readers) > 1:
        raise ConfigError("- (standard input) is named by several sources, but can be read once only")
    for task in readers:
        if task.sampled or task.files[0].format == "parquet":
            why = "max_bytes has to read its source twice" if task.sampled else "Parquet is read from its end"
            raise ConfigError(f"- (standard input): {why}; save it to a file first")


def input_files(entry: CorpusEntry) -> list[tuple[str, int | None, int, str]]:
    """The names, sizes, times of change and kinds of place of the files of an entry."""
    if isinstance(entry, CorpusFile):
        return [(str(entry.path), entry.size, entry.modified, "file")]
    if isinstance(entry, StreamTask):
        return [(file.name, file.size, file.modified, file.place) for file in entry.files]
    return [(DOCUMENTS, None, 0, "iterable")]
