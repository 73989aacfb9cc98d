"""The sources of a corpus, from its settings: what is known of each, and its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bpeflow.config import CountSettings, SourceSettings
from bpeflow.corpus import CorpusFile, Source, StreamTask
from bpeflow.corpus.given import GivenDocuments
from bpeflow.corpus.inputs import InputRules, find_inputs
from bpeflow.corpus.sample import Sample
from bpeflow.errors import ConfigError, CorpusError

#: A source of input that has no name of its own.
UNNAMED = "input"

Entry = CorpusFile | StreamTask | GivenDocuments


@dataclass(frozen=True)
class Corpus:
    """What there is to count.

    Attributes:
        sources: what is known of each source, by their numbers.
        entries: the files, of all sources.
    """

    sources: list[Source]
    entries: list[Entry] = field(repr=False)

    @property
    def streams(self) -> list[StreamTask]:
        """What is read as a stream."""
        return [entry for entry in self.entries if isinstance(entry, StreamTask)]

    @property
    def only_here(self) -> bool:
        """Whether some of it can be read in the calling process only: its standard input, or an iterable."""
        return any(
            isinstance(entry, GivenDocuments) or (isinstance(entry, StreamTask) and entry.only_here)
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


def stream_parts(entries: Iterable[Entry]) -> int:
    """How many streams can be read at once, at most. (A Parquet file has nobody knows how many row groups.)"""
    tasks = [entry for entry in entries if isinstance(entry, StreamTask)]
    return sum(100 if task.files[0].format == "parquet" else 1 for task in tasks)


def longest_first(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in an order in which the longest streams begin early: they take longest. Files come after them."""
    return sorted(entries, key=lambda entry: -1 - entry.weight if isinstance(entry, StreamTask) else 0)


def find_corpus(settings: CountSettings, given: GivenDocuments | None = None) -> Corpus:
    """Find the files of all sources. Raises `CorpusError` for what is missing or unreadable, `ConfigError`."""
    if given is not None:
        return Corpus([Source(UNNAMED)], [given])
    wanted = list(settings.sources)
    if settings.input:
        wanted.insert(0, SourceSettings(name=UNNAMED, paths=settings.input))
    sources: list[Source] = []
    entries: list[Entry] = []
    for number, source in enumerate(wanted):
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


def _check_stdin(entries: list[Entry]) -> None:
    """Refuse what standard input, which can be read once, cannot give."""
    readers = [e for e in entries if isinstance(e, StreamTask) and _reads_stdin(e)]
    if len(readers) > 1:
        raise ConfigError("- (standard input) is named by several sources, but can be read once only")
    for task in readers:
        if task.sampled or task.files[0].format == "parquet":
            why = "max_bytes has to read its source twice" if task.sampled else "Parquet is read from its end"
            raise ConfigError(f"- (standard input): {why}; save it to a file first")
