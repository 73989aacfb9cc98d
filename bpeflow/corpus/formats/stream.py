"""Inputs that are read from their begin to their end: compressed files, standard input, URLs, files of records.

Plain text in files of this machine is none of them: it is divided by looking for places (`plan`), and is read by those
who count it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO, Literal, Protocol

from bpeflow._util.extras import load_extra
from bpeflow._util.memory import is_memory_error
from bpeflow.corpus.formats.compression import MAGIC_BYTES, Compression, compression_of, decompress
from bpeflow.corpus.formats.stdin import WatchedInput
from bpeflow.errors import CorpusError

Format = Literal["text", "jsonl", "parquet"]
Place = Literal["file", "url", "stdin"]

#: Stands for standard input where files are named.
STDIN = "-"

#: What is read of a file at a time.
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class StreamFile:
    """An input that is read as a stream.

    Attributes:
        name: its path, its URL, or ``-``.
        size: bytes, compressed as they are, when it was found; None where nobody can tell.
        format: what it holds when it is not compressed any more.
        place: what the name means.
        source: the number of the source that it is of.
        row_groups: for Parquet, which row groups to read; None for all.
        modified: when it had last been changed, in nanoseconds; 0 where nobody knows.
    """

    name: str
    size: int | None
    format: Format = "text"
    place: Place = "file"
    source: int = 0
    row_groups: tuple[int, ...] | None = None
    modified: int = 0

    @property
    def main_process_only(self) -> bool:
        """Whether only this process has it: its standard input, or what fsspec keeps in memory."""
        return self.place == "stdin" or self.name.startswith("memory://")

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file, which is not standard input, as it is, compressed or not."""
        if self.place == "url":
            fsspec = load_extra("fsspec", "fsspec", f"URLs such as {self.name}")
            opened: AbstractContextManager[BinaryIO] = fsspec.open(self.name, "rb")
            return opened
        return Path(self.name).open("rb")


class SupportsRead(Protocol):
    """A stream of bytes."""

    def read(self, most: int, /) -> bytes: ...


class Blocks(Iterator[bytes]):
    """The bytes of a stream, block by block.

    Attributes:
        name: as messages call what the offsets of these bytes are in.
        taken: how many bytes of the file, compressed as they are, it took so far.
    """

    def __init__(self, file: StreamFile, stream: SupportsRead) -> None:
        self.taken = 0
        self._file = file
        self._stream = stream
        begin = self._read(MAGIC_BYTES)
        while 0 < len(begin) < MAGIC_BYTES and (more := self._read(MAGIC_BYTES - len(begin))):
            begin += more
        self.compression: Compression | None = compression_of(begin)
        raw = self._raw(begin)
        self._blocks = decompress(raw, self.compression, file.name) if self.compression else raw
        self.name = f"{file.name} (decompressed)" if self.compression else file.name

    def __next__(self) -> bytes:
        return next(self._blocks)

    def _raw(self, begin: bytes) -> Iterator[bytes]:
        if begin:
            yield begin
        while block := self._read(_BLOCK):
            yield block
        size = self._file.size
        if size is not None and self.taken < size:
            raise CorpusError(
                f"{self._file.name} shrank from {size} to {self.taken} bytes; run again when it is complete"
            )

    def _read(self, most: int) -> bytes:
        """The next bytes; none behind the end that the file had when it was found."""
        if self._file.size is not None:
            most = min(most, self._file.size - self.taken)
        block = self._stream.read(most) if most else b""
        self.taken += len(block)
        return block


@contextmanager
def open_blocks(file: StreamFile, cancelled: Event | None = None) -> Iterator[Blocks]:
    """Open a stream and read it, decompressed. Raises `CorpusError`, which names it, whatever fails about it.

    While standard input gives nothing, `CancelledError` is raised as soon as ``cancelled`` is set.
    """
    with reading(file):
        if file.place == "stdin":
            yield Blocks(file, WatchedInput(cancelled or Event()))
            return
        with file.open() as stream:
            yield Blocks(file, stream)


@contextmanager
def reading(file: StreamFile) -> Iterator[None]:
    """Turn the exceptions of files, and of the many libraries behind URLs, into `CorpusError`."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            raise
        if isinstance(error, OSError):
            raise CorpusError(f"cannot read {file.name}: {error.strerror or error or type(error).__name__}") from error
        if file.place != "url" or type(error).__module__.startswith("bpeflow."):
            raise
        raise CorpusError(f"cannot read {file.name}: {error or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class StreamTask:
    """Streams to be read one after another: one, or all of a source that a sample is drawn from (``sampled``)."""

    files: tuple[StreamFile, ...]
    sampled: bool = False

    @property
    def main_process_only(self) -> bool:
        """Whether one of them can be read in the calling process only."""
        return any(file.main_process_only for file in self.files)

    @property
    def weight(self) -> int:
        """How much of the corpus it is, by the sizes of files."""
        return sum(file.size or 0 for file in self.files)
