"""The corpus that the settings describe: its sources and their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bpeflow._util.text import short_repr
from bpeflow.corpus.files import InputFile, SampledFiles
from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.corpus.records import DocumentIterable
from bpeflow.corpus.text_rules import Sample, Source
from bpeflow.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from bpeflow.config import CorpusSettings  # pydantic, which workers do without

#: What a corpus consists of.
CorpusEntry = InputFile | SampledFiles | DocumentIterable


@dataclass(frozen=True)
class Corpus:
    """A corpus whose files have been found.

    Attributes:
        sources: the sources by their numbers.
        entries: the files, streams and iterables of all sources.
    """

    sources: list[Source]
    entries: list[CorpusEntry] = field(repr=False)

    @property
    def streams(self) -> list[CorpusEntry]:
        """The entries that are read as streams."""
        return [entry for entry in self.entries if not entry.plain]

    @property
    def main_process_only(self) -> bool:
        """Whether only the calling process can read a part of it, such as standard input or an iterable."""
        return any(entry.main_process_only for entry in self.entries)

    @property
    def known_bytes(self) -> int:
        """The total size of all files whose size is known, before decompression."""
        return sum(entry.weight for entry in self.entries)

    @property
    def total_bytes(self) -> int | None:
        """The total size of all files; None if that of one is unknown."""
        sizes = [file.size for entry in self.entries for file in entry.files]
        return None if None in sizes else self.known_bytes

    def file_counts(self) -> list[int]:
        """Return the number of files of each source."""
        files = (file for entry in self.entries for file in entry.files if file.location != "iterable")
        counts = Counter(file.source for file in files)
        return [counts[number] for number in range(len(self.sources))]


def find_corpus(settings: CorpusSettings, documents: DocumentIterable | None = None, in_order: bool = False) -> Corpus:
    """Find the files of all sources.

    Args:
        settings: the settings that name the sources.
        documents: an iterable of documents that is the corpus instead.
        in_order: whether the files of a source stay in the order in which they are named; by default they are sorted.

    Raises:
        CorpusError: an input is missing or cannot be read.
        ConfigError: standard input is to be read more than once, or as Parquet.
    """
    if documents is not None:
        fields = _split_path(settings.text_field)
        return Corpus([Source(text_field=fields, bad_records=settings.bad_records)], [documents])
    sources: list[Source] = []
    entries: list[CorpusEntry] = []
    for number, source in enumerate(settings.all_sources):
        rules = InputRules(
            exclude=(*settings.exclude, *source.exclude),
            format=source.format or settings.input_format,
            source=number,
            sampled=source.max_bytes is not None,
            invalid_utf8=settings.invalid_utf8,
            in_order=in_order,
        )
        try:
            entries += find_inputs(source.paths, rules)
        except CorpusError as error:
            name = source.name if len(source.name) < 80 else short_repr(source.name)
            raise CorpusError(f"source {name}: {error}" if settings.sources else str(error)) from error
        sources.append(
            Source(
                name=source.name,
                weight=source.weight,
                sample=None if source.max_bytes is None else Sample(int(source.max_bytes), source.seed),
                text_field=_split_path(source.text_field or settings.text_field),
                text_column=_split_path(source.text_column or settings.text_column),
                bad_records=settings.bad_records,
            )
        )
    _check_stdin(entries)
    return Corpus(sources, entries)


def _split_path(names: str) -> tuple[str, ...]:
    return tuple(names.split("."))


def _check_stdin(entries: list[CorpusEntry]) -> None:
    """Raise `ConfigError` if standard input is used in a way that takes more than one pass from start to end."""
    readers = [entry for entry in entries if any(file.location == "stdin" for file in entry.files)]
    if len(readers) > 1:
        raise ConfigError("- (standard input) is named by several sources, but can be read only once")
    for entry in readers:
        sampled = isinstance(entry, SampledFiles)
        if sampled or entry.files[0].format == "parquet":
            reason = "max_bytes has to read its source twice" if sampled else "Parquet is read from its end"
            raise ConfigError(f"- (standard input): {reason}; save it to a file first")


def stream_parts(entries: Iterable[CorpusEntry]) -> int:
    """Return an upper bound on the streams that can be read in parallel.

    A Parquet file counts as 100, because its number of row groups is not known yet.
    """
    return sum(100 if entry.files[0].format == "parquet" else 1 for entry in entries if not entry.plain)


def longest_first(entries: Iterable[CorpusEntry]) -> list[CorpusEntry]:
    """Return the entries with the longest streams first, because those take longest, and the files last."""
    return sorted(entries, key=lambda entry: 0 if entry.plain else -1 - entry.weight)
