"""Streams: inputs that are read from start to end. Compressed files, standard input, URLs, JSON Lines and Parquet.

Local files of plain text are not streams. They are divided into chunks without being read as a whole (see `split`), and
the workers that count the chunks read them. Standard input may make its readers wait indefinitely.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from bpeflow._util.extras import load_extra
from bpeflow._util.machine import is_memory_error
from bpeflow.corpus.formats.content import MAGIC_BYTES, START_BYTES, Compression, decompress, detect_compression
from bpeflow.errors import CorpusError
from bpeflow.flow import wait_readable

Format = Literal["text", "jsonl", "parquet"]
Location = Literal["file", "url", "stdin"]

#: The name of standard input among the inputs.
STDIN = "-"

#: Bytes read from a file at a time. Larger: fewer reads; smaller: less memory.
_BLOCK_BYTES = 1 << 18


class StandardInput:
    """Standard input, for the source of a pipeline: a read that waits ends if the pipeline fails."""

    def __init__(self) -> None:
        self._buffer = standard_input()
        self._may_be_buffered = True  # others may have read from the same buffer before
        try:
            self._descriptor: int | None = self._buffer.fileno()
        except (AttributeError, OSError):  # `sys.stdin` was replaced by something else
            self._descriptor = None

    def read(self, limit: int) -> bytes:
        """Return up to `limit` bytes as soon as there are any; none at the end."""
        if self._descriptor is not None and not self._may_be_buffered:
            wait_readable(self._descriptor)
        block = self._buffer.read1(limit)
        self._may_be_buffered = len(block) == limit
        return block


def standard_input() -> BufferedReader:
    """Return standard input as bytes. Raises `CorpusError` if it is closed."""
    buffer: BufferedReader | None = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        raise CorpusError("standard input (-) is closed: pipe text into it, or name files instead")
    return buffer


@dataclass(frozen=True, slots=True)
class StreamFile:
    """An input that is read as a stream.

    Attributes:
        name: its path, its URL, or ``-``.
        size: size in bytes when it was found, before decompression; None if unknown.
        format: format of the content after decompression.
        location: what `name` refers to: a local file, a URL, or standard input.
        source: number of the source that it belongs to.
        row_groups: for Parquet, the row groups to read; None for all.
        modified: modification time in nanoseconds; 0 if unknown.
        inode: its number on its volume; 0 if unknown.
        guessed: whether its name, not a setting, decided about the format.
        part: the bytes of the file that the row groups take, approximately; None for all.
    """

    name: str
    size: int | None
    format: Format = "text"
    location: Location = "file"
    source: int = 0
    row_groups: tuple[int, ...] | None = None
    modified: int = 0
    inode: int = 0
    guessed: bool = False
    part: int | None = None

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers; 0 if unknown."""
        return (self.size if self.part is None else self.part) or 0

    @property
    def title(self) -> str:
        """Its name in messages."""
        return "standard input" if self.name == STDIN else self.name

    @property
    def main_process_only(self) -> bool:
        """Whether no other process can read it: standard input, or a file in fsspec's memory."""
        return self.location == "stdin" or self.name.startswith("memory://")

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file, which must not be standard input, without decompressing it."""
        if self.location == "url":
            fsspec = load_extra("fsspec", "fsspec", f"URLs such as {self.name}")
            opened: AbstractContextManager[BinaryIO] = fsspec.open(self.name, "rb")
            return opened
        return Path(self.name).open("rb")


@dataclass(frozen=True, slots=True)
class StreamTask:
    """Streams to read one after another, in one process.

    Attributes:
        files: one stream, or all streams of a source from which a sample is drawn.
        sampled: whether to draw a sample.
    """

    files: tuple[StreamFile, ...]
    sampled: bool = False

    @property
    def main_process_only(self) -> bool:
        """Whether only the calling process can read one of the streams."""
        return any(file.main_process_only for file in self.files)

    @property
    def has_row_groups(self) -> bool:
        """Whether it is a Parquet file, or a part of one, that can be divided by row groups."""
        return not self.sampled and self.files[0].format == "parquet"

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers."""
        return sum(file.weight for file in self.files)


class SupportsRead(Protocol):
    """A stream of bytes."""

    def read(self, limit: int, /) -> bytes:
        """Return at most `limit` bytes; none at the end of the stream."""


class Blocks(Iterator[bytes]):
    """The decompressed bytes of a stream, block by block.

    Attributes:
        name: the name of the stream for messages with an offset; says if the offset is one after decompression.
        bytes_read: bytes read from the file so far, before decompression.
        compression: the compression of the file; None if it is not compressed.
        start: the first bytes, to recognise the content by: up to `START_BYTES`.
    """

    def __init__(self, file: StreamFile, stream: SupportsRead) -> None:
        self.bytes_read = 0
        self._file = file
        self._stream = stream
        start = self._read(START_BYTES)
        while 0 < len(start) < MAGIC_BYTES and (more := self._read(START_BYTES)):
            start += more
        self.compression: Compression | None = detect_compression(start)
        raw = self._raw(start)
        blocks = decompress(raw, self.compression, file.name) if self.compression else raw
        first = next(blocks, b"")
        self.start = first[:START_BYTES]
        self._blocks = chain([first], blocks) if first else blocks
        self.name = f"{file.name} (decompressed)" if self.compression else file.name

    def __next__(self) -> bytes:
        return next(self._blocks)

    def _raw(self, start: bytes) -> Iterator[bytes]:
        if start:
            yield start
        while block := self._read(_BLOCK_BYTES):
            yield block
        size = self._file.size
        if size is not None and self.bytes_read < size:
            raise CorpusError(
                f"{self._file.name} shrank from {size:,} to {self.bytes_read:,} bytes; run again when it is complete"
            )

    def _read(self, limit: int) -> bytes:
        """Return the next bytes, but none beyond the size that the file had when it was found."""
        if self._file.size is not None:
            limit = min(limit, self._file.size - self.bytes_read)
        block = self._stream.read(limit) if limit else b""
        self.bytes_read += len(block)
        return block


@contextmanager
def open_blocks(file: StreamFile) -> Iterator[Blocks]:
    """Open a stream and decompress it.

    Raises `CorpusError`, with the name of the stream, if opening or reading it fails.
    """
    with convert_errors(file):
        if file.location == "stdin":
            yield Blocks(file, StandardInput())
            return
        with file.open() as stream:
            yield Blocks(file, stream)


@contextmanager
def convert_errors(file: StreamFile) -> Iterator[None]:
    """Turn exceptions of files, and of the many libraries behind URLs, into `CorpusError`."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            raise
        if isinstance(error, OSError):
            raise CorpusError(f"cannot read {file.name}: {error.strerror or error or type(error).__name__}") from error
        if file.location != "url" or type(error).__module__.startswith("bpeflow."):
            raise
        raise CorpusError(f"cannot read {file.name}: {error or type(error).__name__}") from error
