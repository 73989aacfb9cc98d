"""The corpus that the settings describe: its sources and their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bpeflow._util.text import short_repr
from bpeflow.corpus.chunk import CorpusFile
from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.corpus.formats.records import DOCUMENTS, DocumentIterable
from bpeflow.corpus.formats.stream import StreamTask
from bpeflow.corpus.text_rules import Sample, Source
from bpeflow.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from bpeflow.config import CorpusSettings  # pydantic, which workers do without


StreamEntry = StreamTask | DocumentIterable
CorpusEntry = CorpusFile | StreamEntry


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
    def streams(self) -> list[StreamTask]:
        """The entries that are read as streams."""
        return [entry for entry in self.entries if isinstance(entry, StreamTask)]

    @property
    def main_process_only(self) -> bool:
        """Whether only the calling process can read a part of it, such as standard input or an iterable."""
        return any(
            isinstance(entry, DocumentIterable) or (isinstance(entry, StreamTask) and entry.main_process_only)
            for entry in self.entries
        )

    @property
    def known_bytes(self) -> int:
        """The total size of all files whose size is known, before decompression."""
        return sum(entry.weight for entry in self.entries)

    @property
    def total_bytes(self) -> int | None:
        """The total size of all files; None if that of one is unknown."""
        sizes = [file.size for entry in self.entries for file in input_files(entry)]
        return None if None in sizes else self.known_bytes

    def file_counts(self) -> list[int]:
        """Return the number of files of each source."""
        counts = [0] * len(self.sources)
        for entry in self.entries:
            if isinstance(entry, CorpusFile):
                counts[entry.source] += 1
            elif isinstance(entry, StreamTask):
                counts[entry.files[0].source] += len(entry.files)
        return counts


def find_corpus(
    settings: CorpusSettings,
    documents: DocumentIterable | None = None,
    find: Callable[[Sequence[str], InputRules], Sequence[CorpusFile | StreamTask]] = find_inputs,
) -> Corpus:
    """Find the files of all sources.

    Args:
        settings: the settings that name the sources.
        documents: an iterable of documents that is the corpus instead.
        find: finds the files of a source, and decides about their order.

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
        )
        try:
            entries += find(source.paths, rules)
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


def _reads_stdin(task: StreamTask) -> bool:
    return any(file.location == "stdin" for file in task.files)


def _check_stdin(entries: list[CorpusEntry]) -> None:
    """Raise `ConfigError` if standard input is used in a way that takes more than one pass from start to end."""
    readers = [e for e in entries if isinstance(e, StreamTask) and _reads_stdin(e)]
    if len(readers) > 1:
        raise ConfigError("- (standard input) is named by several sources, but can be read only once")
    for task in readers:
        if task.sampled or task.files[0].format == "parquet":
            reason = "max_bytes has to read its source twice" if task.sampled else "Parquet is read from its end"
            raise ConfigError(f"- (standard input): {reason}; save it to a file first")


class InputFile(NamedTuple):
    """A file of an entry, as it was when it was found; see `CorpusFile` and `StreamFile`."""

    name: str
    size: int | None
    modified: int
    inode: int
    location: str


def input_files(entry: CorpusEntry) -> list[InputFile]:
    """Return the files of an entry."""
    if isinstance(entry, CorpusFile):
        return [InputFile(str(entry.path), entry.size, entry.modified, entry.inode, "file")]
    if isinstance(entry, StreamTask):
        return [InputFile(file.name, file.size, file.modified, file.inode, file.location) for file in entry.files]
    return [InputFile(DOCUMENTS, None, 0, 0, "iterable")]


def with_absolute_paths(entry: CorpusEntry) -> CorpusEntry:
    """Return an entry with the absolute paths of its local files, for processes that run in another folder."""
    if isinstance(entry, CorpusFile):
        return replace(entry, path=entry.path.absolute())
    if isinstance(entry, StreamTask):
        files = (
            replace(file, name=str(Path(file.name).absolute())) if file.location == "file" else file
            for file in entry.files
        )
        return replace(entry, files=tuple(files))
    return entry


def stream_parts(entries: Iterable[CorpusEntry]) -> int:
    """Return an upper bound on the streams that can be read in parallel.

    A Parquet file counts as 100, because its number of row groups is not known yet.
    """
    tasks = [entry for entry in entries if isinstance(entry, StreamTask)]
    return sum(100 if task.files[0].format == "parquet" else 1 for task in tasks)


def longest_first(entries: Iterable[CorpusEntry]) -> list[CorpusEntry]:
    """Return the entries with the longest streams first, because those take longest, and the files last."""
    return sorted(entries, key=lambda entry: -1 - entry.weight if isinstance(entry, StreamTask) else 0)
