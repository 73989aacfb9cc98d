"""Compression, known by its first bytes, and undone in bounded memory.

Every decompressor here is asked for a bounded number of bytes at a time, whatever the compressed ones unfold to; so a
file of some kilobytes that stands for terabytes takes its time, but no memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol

from bpeflow._util.extras import load_extra
from bpeflow.errors import CorpusError

#: How many bytes of a file `compression_of` wants to see.
MAGIC_BYTES = 10

#: Bytes that a decompressor gives at a time, at most. More: fewer calls; less: fewer bytes that a bomb costs.
_OUTPUT = 1 << 20

#: Bytes that zstandard is given at a time, as it does not let itself be asked for less than all that they unfold to:
#: 32 MB at worst, for a block of 128 KB can be 4 bytes. (64 KB at a time are a fifth faster, and 2 GB at worst.)
_ZSTD_INPUT = 1 << 10
_SUFFIXES = frozenset({".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd"})

#: An xz file may ask for a dictionary of up to 4 GB; this is twice what `xz -9` asks for.
_XZ_MEMORY = 128 << 20


class _Decompressor(Protocol):
    """What those of bz2 and lzma have in common, and the others are made to have."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Compression(NamedTuple):
    """A kind of compression.

    Attributes:
        name: as people call it.
        magic: matches what its files begin with.
        make: returns what undoes one member, or frame, of a file, and the exceptions that this raises for damaged ones.
        padding: whether zeros may stand behind a member.
        input_bytes: how much it is given at a time.
    """

    name: str
    magic: re.Pattern[bytes]
    make: Callable[[], tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]]
    padding: bool
    input_bytes: int


def _gzip() -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    import zlib

    return _Zlib, (zlib.error,)


def _bzip2() -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    import bz2

    return bz2.BZ2Decompressor, (OSError, ValueError)


def _xz() -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    import lzma

    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), (lzma.LZMAError,)


def _zstandard() -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    zstandard = load_extra("zstandard", "zstd", "files compressed with zstandard")
    return lambda: _Zstandard(zstandard.ZstdDecompressor().decompressobj()), (zstandard.ZstdError,)


COMPRESSIONS = (
    Compression("gzip", re.compile(rb"\x1f\x8b\x08"), _gzip, padding=True, input_bytes=1 << 16),
    Compression(
        "bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), _bzip2, padding=False, input_bytes=1 << 16
    ),
    Compression("xz", re.compile(rb"\xfd7zXZ\x00"), _xz, padding=True, input_bytes=1 << 16),
    Compression(
        "zstandard", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _zstandard, padding=False,
        input_bytes=_ZSTD_INPUT,
    ),
)  # fmt: skip


def compression_of(begin: bytes) -> Compression | None:
    """The compression of a file that begins with these `MAGIC_BYTES` bytes; None if it is not compressed."""
    return next((compression for compression in COMPRESSIONS if compression.magic.match(begin)), None)


def without_compression_suffix(name: str) -> str:
    """A file's name without an ending such as ``.gz``, so that the one before it tells the format."""
    path = PurePath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in _SUFFIXES else name


def decompress(blocks: Iterator[bytes], compression: Compression, name: str) -> Iterator[bytes]:
    """The bytes that the compressed ``blocks`` stand for: of all members, or frames, one after another.

    Raises `CorpusError`, which names the file, for data that is damaged, ends too early or has other data behind it.
    """
    new, errors = compression.make()
    waiting = b""
    place = 0  # of the compressed byte with which `waiting` begins
    first = True
    while True:
        while len(waiting) < MAGIC_BYTES and (block := next(blocks, b"")):
            waiting += block
        if not waiting:
            return
        if not first and not compression.magic.match(waiting):
            if not compression.padding or waiting.strip(b"\0"):
                raise CorpusError(
                    f"{name}: at byte {place:,}, behind the {compression.name} data, stands something else; the file "
                    "is damaged or was appended to: copy or compress it again"
                )
            place, waiting = place + len(waiting), b""
            continue
        first = False
        member = new()
        try:
            while not member.eof:
                piece = b""
                if member.needs_input:
                    waiting = waiting or next(blocks, b"")
                    piece, waiting = waiting[: compression.input_bytes], waiting[compression.input_bytes :]
                    place += len(piece)
                text = member.decompress(piece, _OUTPUT)
                if text:
                    yield text
                elif not piece and member.needs_input:
                    raise CorpusError(
                        f"{name}: the {compression.name} data ends too early, at byte {place:,}; the file was cut "
                        "short: copy it again"
                    )
        except errors as error:
            raise CorpusError(
                f"{name}: damaged {compression.name} data before byte {place:,} ({error}); copy it again"
            ) from error
        place -= len(member.unused_data)
        waiting = member.unused_data + waiting


class _Zlib:
    """A gzip member, behind the interface of bz2 and lzma."""

    def __init__(self) -> None:
        import zlib

        self._object = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._object.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._object.decompress(self._object.unconsumed_tail + data, max_length)


class _Zstandard:
    """A zstandard frame, behind the interface of bz2 and lzma; it cannot be asked for less than all."""

    needs_input = True

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return bytes(self._frame.decompress(data))
