"""The corpus that the settings describe: its sources and their files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bpeflow._util.text import format_size, short_repr
from bpeflow.corpus.files import STDIN, InputFile
from bpeflow.corpus.find import InputRules, check_is_path, find_inputs
from bpeflow.corpus.text_rules import FLATTEN_REMEDY, Sample, Source
from bpeflow.errors import ConfigError, CorpusError, InputTypeError

if TYPE_CHECKING:
    from bpeflow.config import CorpusSettings, SourceSettings  # pydantic, which workers do without

    AnyCorpusSettings = TypeVar("AnyCorpusSettings", bound=CorpusSettings)

log = logging.getLogger(__name__)

#: The name of an iterable wherever a file would have its own.
DOCUMENTS = "<documents>"


#: Settings that divide a corpus: the bytes of a piece of size 1 (a token has about 4 in most texts), a size below which
#: a setting may make at most `_MOST_PIECES`, and a usual size. More pieces take minutes to days: a unit was forgotten.
_SIZES = {
    "chunk_size": (1, 64_000, "8mb"),
    "segment_size": (1, 64_000_000, "8gb"),
    "shard_tokens": (4, 10_000_000, "100m"),
}
_MOST_PIECES = 10_000


@dataclass(frozen=True)
class Corpus:
    """A corpus whose files have been found.

    Attributes:
        sources: the sources by their numbers.
        entries: the files, streams and iterables of all sources.
    """

    sources: list[Source]
    entries: list[InputFile] = field(repr=False)

    @property
    def files(self) -> list[InputFile]:
        """All files, and iterables in place of files."""
        return [file for entry in self.entries for file in entry.files]

    @property
    def streams(self) -> list[InputFile]:
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
        """The total size of all files; None if the size of any is unknown."""
        return None if any(file.size is None for file in self.files) else self.known_bytes

    def file_counts(self) -> list[int]:
        """Return the number of files of each source."""
        counts = Counter(file.source for file in self.files if file.location != "iterable")
        return [counts[number] for number in range(len(self.sources))]

    def check_distributable(self) -> None:
        """Raise `ConfigError` if other processes cannot read the corpus."""
        if self.main_process_only:
            raise ConfigError(
                "standard input, iterables and files in memory cannot be read by other processes: save them to files, "
                "or use engine='local'"
            )

    def check_sizes(self, **sizes: int | None) -> None:
        """Raise `ConfigError` if the value of a setting in `_SIZES` divides the corpus into far too many pieces."""
        for name, size in sizes.items():
            unit, small, usual = _SIZES[name]
            if size and size < small and (pieces := self.known_bytes // (size * unit)) >= _MOST_PIECES:
                raise ConfigError(
                    f"{name}: {size:,} would divide {format_size(self.known_bytes)} into about {pieces:,} pieces, "
                    f"which takes very long; give more, with a unit, such as {usual}"
                )


def each_document_once(settings: AnyCorpusSettings, sampled: bool = True) -> AnyCorpusSettings:
    """Return the settings without the weights of sources and, unless `sampled`, their samples. Messages name both."""
    sources = settings.sources
    weighted = [f"{source.name} ({source.weight})" for source in sources if source.weight != 1]
    parts = [f"{source.name} ({format_size(source.max_bytes)})" for source in sources if source.max_bytes is not None]
    if weighted:
        log.info("weights are ignored, as each document counts once: %s", ", ".join(weighted))
    if parts and sampled:
        log.info("only random samples of these sources are read: %s", ", ".join(parts))
    elif parts:
        log.info("max_bytes is ignored: whole sources are encoded (sampled=True for the samples): %s", ", ".join(parts))
    once = {"weight": 1} if sampled else {"weight": 1, "max_bytes": None}
    return settings.model_copy(update={"sources": tuple(source.model_copy(update=once) for source in sources)})


def find_corpus(settings: CorpusSettings, documents: Iterable[Any] | None = None, in_order: bool = False) -> Corpus:
    """Find the files of all sources.

    Args:
        settings: the settings that name the sources.
        documents: the documents that are the corpus instead, each a `str`, `bytes` of UTF-8, or a mapping with the text
            in a field, such as the rows of a HuggingFace dataset. They are read once, in the calling process.
        in_order: whether the files of a source stay in the order in which they are named; by default they are sorted.

    Raises:
        CorpusError: an input is missing or cannot be read.
        ConfigError: standard input is to be read more than once, or as Parquet.
    """
    if documents is not None:
        fields = _split_path(settings.text_field)
        entry = InputFile(DOCUMENTS, None, location="iterable", documents=documents)
        return Corpus([Source(text_field=fields)], [entry])
    sources: list[Source] = []
    entries: list[InputFile] = []
    weights, _ = settings.whole_weights
    for number, source in enumerate(settings.all_sources):
        rules = InputRules(
            exclude=(*settings.exclude, *source.exclude),
            format=source.format or settings.input_format,
            source=number,
            invalid_utf8=settings.invalid_utf8,
            in_order=in_order and source.max_bytes is None,  # a sample is of files in sorted order
        )
        try:
            files = find_inputs(source.paths, rules)
        except CorpusError as error:
            if not settings.sources:
                raise
            raise type(error)(f"source {source.name[:80]}: {error}") from None
        sample = None
        if source.max_bytes is not None:
            sample = Sample(int(source.max_bytes), source.seed)
            files = [replace(files[0], format="text", plain=False, sampled=tuple(files))]
        entries += files
        sources.append(
            Source(
                name=source.name,
                weight=weights[number],
                sample=sample,
                text_field=_split_path(source.text_field or settings.text_field),
            )
        )
    _check_stdin(entries)
    return Corpus(sources, entries)


def _split_path(names: str) -> tuple[str, ...]:
    return tuple(names.split("."))


def check_rereadable(sources: Iterable[SourceSettings], reader: str) -> None:
    """Raise `ConfigError` if standard input is one of the sources, which `reader` (for messages) reads repeatedly."""
    if any(STDIN in source.paths for source in sources):
        _refuse_stdin(f"{reader} reads the corpus several times")


def _check_stdin(entries: list[InputFile]) -> None:
    """Raise `ConfigError` if standard input is used in a way that takes more than one pass from start to end."""
    readers = [entry for entry in entries if any(file.location == "stdin" for file in entry.files)]
    if len(readers) > 1:
        _refuse_stdin("several sources name it")
    for entry in readers:
        if entry.sampled or entry.format == "parquet":
            _refuse_stdin("max_bytes reads its source twice" if entry.sampled else "Parquet is read from its end")


def _refuse_stdin(reason: str) -> NoReturn:
    raise ConfigError(f"standard input can be read only once, but {reason}: save it to a file, and name that")


def stream_parts(entries: Iterable[InputFile]) -> int:
    """Return an upper bound on the streams that can be read in parallel.

    A Parquet file counts as 100, because its number of row groups is not known yet.
    """
    return sum(100 if entry.format == "parquet" else 1 for entry in entries if not entry.plain)


def longest_first(entries: Iterable[InputFile]) -> list[InputFile]:
    """Return the entries with the longest streams first, because those take longest, and the files last."""
    return sorted(entries, key=lambda entry: 0 if entry.plain else -1 - entry.weight)


def check_unchanged(entries: Iterable[InputFile], remedy: str, may_grow: bool = False) -> None:
    """Check that no local file was changed or replaced since it was found.

    Args:
        entries: the entries of the corpus to check.
        remedy: end of the error message, which says what to do.
        may_grow: whether to accept a file that has become longer, such as a log that is still being written. The
            appended part was not read, and a warning says so.

    Raises:
        CorpusError: a file was changed or replaced, or cannot be read any more.
    """
    for file in (file for entry in entries for file in entry.files):
        if file.location == "file":
            try:
                status = Path(file.name).stat()
            except OSError as error:
                raise CorpusError(f"cannot read {file.name}: {error.strerror}; {remedy}") from error
            is_same = file.inode in (0, status.st_ino)
            if may_grow and is_same and file.size is not None and status.st_size > file.size:
                log.warning("%s has grown: only its first %s were read", file.name, format_size(file.size))
            elif (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
                raise CorpusError(f"{file.name} was changed while it was read, or is not the file found; {remedy}")


# ---- iterables ----


def split_off_documents(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Iterable[Any] | None]:
    """Split settings from the iterable of documents that their `input` may be.

    Returns the settings, and the iterable or None. Raises `InputTypeError` as `check_iterable` does and for a mixture
    of paths and documents, and `CorpusError` for text in place of a path: here, so that the traceback is short.
    """
    given = values.get("input", ())
    if given is None or isinstance(given, bytes | int | float):
        remedy = "give a file, a folder, a glob, a list of these, or documents"
        raise InputTypeError(f"the corpus is {short_repr(given)}: {remedy}")
    check_iterable(given)
    if _is_documents(given, values.get("text_field", "text")):
        return {**values, "input": DOCUMENTS}, given
    first = given[0] if isinstance(given, list | tuple) and given else given
    if isinstance(first, str):
        check_is_path(first)
    return values, None


def check_iterable(value: object) -> None:
    """Raise `InputTypeError` for tables, datasets of several splits, and lists of lists, none of which yield texts."""
    kind = type(value).__name__
    if isinstance(value, list | tuple) and any(isinstance(entry, list | tuple) for entry in value):
        raise InputTypeError(f"a {kind} of lists: {FLATTEN_REMEDY}")
    if hasattr(value, "columns"):
        raise InputTypeError(f"a {kind} is a table: pass its column with the text, such as table['text']")
    parts = list(value.values()) if isinstance(value, Mapping) and not {"paths", "path"} & value.keys() else []
    if parts and all(isinstance(part, Iterable) and not isinstance(part, str) for part in parts):
        raise InputTypeError(
            f"a {kind} holds several corpora or columns: pass one of them, such as datasets['train'] or "
            "iter(table['text'])"
        )


def _is_documents(value: object, text_field: object) -> bool:
    """Return whether an input is an iterable of documents. Mappings and sets are refused elsewhere."""
    # Lists and tuples hold paths and sources, unless they contain bytes, or mappings with the text in a field.
    if isinstance(value, list | tuple):
        field = str(text_field).partition(".")[0]
        are_texts = [isinstance(entry, bytes) or (isinstance(entry, Mapping) and field in entry) for entry in value]
        if any(are_texts) and (path := next((entry for entry in value if isinstance(entry, str | PathLike)), None)):
            raise InputTypeError(
                f"a {type(value).__name__} of paths and documents ({short_repr(path)} and others): pass paths alone, "
                "or documents as iter(documents), where each str is a text"
            )
        return any(are_texts)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping | set | frozenset)
