"""Compression: recognised by the first bytes of a file, and undone in bounded memory.

Every decompressor is asked for a bounded number of bytes at a time, however much its input decompresses to. A file of a
few kilobytes that decompresses to terabytes therefore takes time, but no memory.

File objects would be shorter, but lose data in silence: those of bz2 and lzma ignore everything from the first byte
that does not start another member, so also what follows xz's padding, and the package zstandard's ends a truncated file
like a complete one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from bpeflow._util.machine import load_extra
from bpeflow.errors import CorpusError

#: Bytes at the start of a file that `detect_compression` needs.
MAGIC_BYTES = 10

#: The library for zstandard, which Python has since 3.14.
ZSTD_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

#: Upper bound on the bytes that a decompressor returns at a time. Larger: fewer calls; smaller: less memory for a bomb.
_OUTPUT_BYTES = 1 << 20

#: Upper bound on the memory for an xz file, whose dictionary may have up to 4 GB: twice what `xz -9` needs.
_XZ_MEMORY = 128 << 20

_SUFFIXES = frozenset({".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd"})


#: Makes a decompressor, which has the methods of `bz2.BZ2Decompressor`, and the exception that it raises.
_Library = tuple[Callable[[], Any], type[Exception]]


class Compression(NamedTuple):
    """A kind of compression.

    Attributes:
        name: its name in messages.
        magic: matches the first bytes of its files.
        load: loads the library. Returns a function that makes a decompressor for one member (or frame) of a file, and
            the exception that the decompressor raises for damaged data.
        padding: the byte that may follow a member any number of times, or empty.
    """

    name: str
    magic: re.Pattern[bytes]
    load: Callable[[], _Library]
    padding: bytes


def _gzip() -> _Library:
    import zlib

    return _Gzip, zlib.error


def _bzip2() -> _Library:
    import bz2

    return bz2.BZ2Decompressor, OSError


def _xz() -> _Library:
    import lzma

    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), lzma.LZMAError


def _zstandard() -> _Library:
    zstd = load_extra(ZSTD_MODULE, "zstd", "files compressed with zstandard")
    return zstd.ZstdDecompressor, zstd.ZstdError


COMPRESSIONS = (
    Compression("gzip", re.compile(rb"\x1f\x8b\x08"), _gzip, padding=b"\0"),
    Compression("bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), _bzip2, padding=b""),
    Compression("xz", re.compile(rb"\xfd7zXZ\x00"), _xz, padding=b"\0"),
    Compression("zstandard", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _zstandard, padding=b""),
)


def detect_compression(start: bytes) -> Compression | None:
    """Return the compression of a file, given its first `MAGIC_BYTES` bytes; None if it is not compressed."""
    return next((compression for compression in COMPRESSIONS if compression.magic.match(start)), None)


def without_compression_suffix(name: str) -> str:
    """Return a file name without a suffix such as ``.gz``, so that the suffix before it gives the format."""
    path = PurePath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in _SUFFIXES else name


def decompress(blocks: Iterator[bytes], compression: Compression, name: str) -> Iterator[bytes]:
    """Decompress all members (or frames) of a file, one after another.

    Args:
        blocks: the compressed bytes.
        compression: the kind of compression.
        name: the name of the file for messages.

    Raises:
        CorpusError: the data is damaged, ends too early or is followed by other data. The message names the file.
    """
    new_decompressor, damaged = compression.load()
    data = b""
    position = 0  # of the end of `data` in the file
    while True:
        while len(data) < MAGIC_BYTES and (block := next(blocks, b"")):
            data = (data + block).lstrip(compression.padding)
            position += len(block)
        if not data:
            return
        if not compression.magic.match(data):
            raise CorpusError(
                f"{name}: unexpected data at byte {position - len(data):,}, after the end of the {compression.name} "
                "data; the file is damaged or was appended to: copy or compress it again"
            )
        member = new_decompressor()
        while not member.eof:
            if not data and member.needs_input:
                data = next(blocks, b"")
                position += len(data)
                if not data:
                    raise CorpusError(
                        f"{name}: the {compression.name} data ends too early, at byte {position:,}; the file was cut "
                        "short: copy it again"
                    )
            try:
                text, data = member.decompress(data, _OUTPUT_BYTES), b""
            except damaged as error:
                raise CorpusError(
                    f"{name}: damaged {compression.name} data before byte {position:,} ({error}); copy it again"
                ) from error
            if text:
                yield text
        data = member.unused_data.lstrip(compression.padding)


class _Gzip:
    """The decompressor of a gzip member, with the interface of bz2 and lzma."""

    def __init__(self) -> None:
        import zlib

        self._member = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail + data, max_length)
