"""The files of a corpus, and reading them from start to end: `InputFile` and `open_blocks`.

Local files of plain text are rarely read so. They are divided into chunks (see `split`), and the workers that count the
chunks read them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from bpeflow._util.machine import load_extra
from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.compression import COMPRESSIONS, MAGIC_BYTES, Compression, decompress, detect_compression
from bpeflow.errors import CorpusError, is_memory_error
from bpeflow.flow import wait_readable

Format = Literal["text", "jsonl", "parquet"]
Location = Literal["file", "url", "stdin", "iterable"]

#: The name of standard input among the inputs.
STDIN = "-"

#: Bytes read from a file at a time. Larger: fewer reads; smaller: less memory.
_BLOCK_BYTES = 1 << 18

#: Bytes at the start of a file to recognise it by.
START_BYTES = 4096

#: The byte order mark of UTF-8. It may begin the first line of JSON; in text, it is text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_UTF8_REMEDY = "convert it to UTF-8 (iconv -f {0} -t UTF-8)"

#: What files begin with, and their names and remedies in messages. Text in UTF-8 does not begin so.
_KINDS = (
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "UTF-32", _UTF8_REMEDY.format("UTF-32")),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16", _UTF8_REMEDY.format("UTF-16")),
    # Without a byte order mark: ASCII, whose other bytes are zero. That would be valid UTF-8.
    (re.compile(rb"([^\0]\0){8}"), "UTF-16", _UTF8_REMEDY.format("UTF-16LE")),
    (re.compile(rb"(\0[^\0]){8}"), "UTF-16", _UTF8_REMEDY.format("UTF-16BE")),
    (re.compile(rb"PAR1[\0-\x08\x0e-\x1f]"), "Parquet", "use input_format='parquet', or name it .parquet"),
    (
        re.compile(rb"PK\x03\x04.{26}[^/]*\.npy", re.DOTALL),
        "an archive of arrays (NumPy), such as the counts of a run",
        "exclude it, or the whole run folder",
    ),
    (re.compile(rb"PK\x03\x04"), "a zip archive", "unpack it, or exclude it"),
    (re.compile(rb".{257}ustar(\0|  \0)", re.DOTALL), "a tar archive", "unpack it, or exclude it"),
    *((inner.magic, inner.name, "decompress that, too") for inner in COMPRESSIONS),  # inside another one
)

#: The beginning of the sidecar of a token file.
_SIDECAR = re.compile(rb'\{\s*"format": "bpeflow tokens"')

_IDS_REMEDY = "leave out token ids by exclude=['*.bin', '*.idx', '*.npy', '*.bin.json', '*.npy.json']"

#: The same for what is never text, even where bytes that are not UTF-8 are accepted.
_TOKEN_IDS = (
    (_SIDECAR, "the sidecar of a token file", _IDS_REMEDY),
    (re.compile(rb"\x93NUMPY"), "an array (NumPy), such as token ids", _IDS_REMEDY),
    (re.compile(rb"MMIDIDX\0"), "the index of token ids (Megatron-LM)", _IDS_REMEDY),
)

#: Endings of token files, and of their indexes, which only the sidecar beside them distinguishes from other files.
_DESCRIBED = (".bin", ".idx")


@dataclass(frozen=True, slots=True)
class InputFile:
    """An entry of a corpus: a file, a part of one, or all files of a source from which a sample is drawn.

    Attributes:
        name: its path, its URL, or ``-``.
        size: size in bytes when it was found, before decompression; None if unknown.
        format: format of the content after decompression.
        location: what `name` refers to.
        source: number of the source that it belongs to.
        plain: whether it is a local file of text that is not compressed, so that it can be divided without being read.
        modified: modification time in nanoseconds when it was found; 0 if unknown.
        inode: its number on its volume when it was found; 0 if unknown.
        guessed: whether its name, not a setting, decided about the format.
        begin: byte at which a part of plain text begins, a boundary (see `split.find_boundary`), or the first row group
            of a part of Parquet.
        end: byte or row group at which the part ends; None for the end of the file.
        part_bytes: bytes of the file that the part covers, of Parquet approximately; None for a whole file.
        documents: the documents of an iterable in place of a file.
        sampled: the files of a source from which a sample is drawn, which one process reads from start to end. The
            entry is named after the first.
    """

    name: str
    size: int | None
    format: Format = "text"
    location: Location = "file"
    source: int = 0
    plain: bool = False
    modified: int = 0
    inode: int = 0
    guessed: bool = False
    begin: int = 0
    end: int | None = None
    part_bytes: int | None = None
    documents: Iterable[Any] | None = field(default=None, repr=False, compare=False)
    sampled: tuple[InputFile, ...] = ()

    @property
    def files(self) -> tuple[InputFile, ...]:
        """The file, or the files of a sampled source."""
        return self.sampled or (self,)

    @property
    def weight(self) -> int:
        """Bytes of input files that it covers; 0 if unknown."""
        return sum((file.size or 0) if file.part_bytes is None else file.part_bytes for file in self.files)

    @property
    def identity(self) -> str:
        """A name that is the same for all paths that lead to the file through links."""
        return os.path.realpath(self.name) if self.location == "file" else self.name

    @property
    def title(self) -> str:
        """Its name in messages."""
        return "standard input" if self.name == STDIN else self.name

    @property
    def main_process_only(self) -> bool:
        """Whether no other process can read it, and perhaps only once."""
        return any(file.location in ("stdin", "iterable") or file.name.startswith("memory://") for file in self.files)

    def absolute(self) -> InputFile:
        """Return it with absolute paths, for processes that run in another folder."""
        name = str(Path(self.name).absolute()) if self.location == "file" else self.name
        return replace(self, name=name, sampled=tuple(file.absolute() for file in self.sampled))

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open the file, which must not be standard input, without decompressing it."""
        if self.location == "url":
            fsspec = load_extra("fsspec", "fsspec", f"URLs such as {self.name}")
            opened: AbstractContextManager[BinaryIO] = fsspec.open(self.name, "rb")
            return opened
        return open(self.name, "rb")  # noqa: PTH123 -- a corpus may have millions of files


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

    def __init__(self, file: InputFile, stream: SupportsRead) -> None:
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

    def check(self, invalid_utf8: InvalidUtf8Policy) -> None:
        """Check that a file that is to be read as text or JSON Lines is not something else.

        A token file is recognised by its sidecar first: ids below 256 look like UTF-16. Unless `invalid_utf8` is
        ``error``, only token ids are refused.

        Raises:
            CorpusError: it is UTF-16, UTF-32, Parquet, an archive or token ids, or compressed twice. The message has
                the remedy.
        """
        if self._file.location == "file" and self._file.name.endswith(_DESCRIBED):
            with suppress(OSError), open(f"{self._file.name.removesuffix('.idx')}.json", "rb") as sidecar:  # noqa: PTH123
                if _SIDECAR.match(sidecar.read(START_BYTES)):
                    raise CorpusError(f"{self._file.name} has token ids, not text: {_IDS_REMEDY}")
        for magic, kind, remedy in (*_TOKEN_IDS, *_KINDS) if invalid_utf8 == "error" else _TOKEN_IDS:
            if magic.match(self.start):
                if self.compression:
                    kind, remedy = f"{kind} inside {self.compression.name}", f"decompress it, then {remedy}"
                raise CorpusError(f"{self._file.title} is {kind}: {remedy}")

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
def open_blocks(file: InputFile) -> Iterator[Blocks]:
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
def convert_errors(file: InputFile) -> Iterator[None]:
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


def records() -> Any:
    """Return the module `records`, which text needs not import."""
    return import_module("bpeflow.corpus.records")
