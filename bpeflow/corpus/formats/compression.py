"""Compression: detected by the first bytes of a file, and decompressed in bounded memory.

Every decompressor is asked for a bounded number of bytes at a time, however much its input decompresses to. A file of a
few kilobytes that decompresses to terabytes therefore takes time, but no memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol

from bpeflow._util.extras import load_extra
from bpeflow.errors import CorpusError

#: Bytes at the start of a file that `detect_compression` needs.
MAGIC_BYTES = 10

#: Upper bound on the bytes that a decompressor returns at a time. Larger: fewer calls; smaller: less memory for a bomb.
_OUTPUT_BYTES = 1 << 20

#: Compressed bytes given to a decompressor at a time. Larger: fewer calls; smaller: less memory.
_INPUT_BYTES = 1 << 16

#: The same for zstandard, whose output cannot be limited: it returns all that its input decompresses to. That is 32 MB
#: at worst, as 4 bytes can be a block of 128 KB. (64 KB at a time is a fifth faster, but takes 2 GB at worst.)
_ZSTD_INPUT_BYTES = 1 << 10

#: Upper bound on the memory for an xz file, whose dictionary may have up to 4 GB: twice what `xz -9` needs.
_XZ_MEMORY = 128 << 20

_SUFFIXES = frozenset({".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd"})


class _Decompressor(Protocol):
    """The common interface of the decompressors of bz2 and lzma. Adapters give it to those of zlib and zstandard."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


_Library = tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]


class Compression(NamedTuple):
    """A kind of compression.

    Attributes:
        name: its name in messages.
        magic: matches the first bytes of its files.
        load: loads the library. Returns a function that makes a decompressor for one member (or frame) of a file, and
            the exceptions that the decompressor raises for damaged data.
        padding: whether zeros may follow a member.
        input_bytes: compressed bytes given to the decompressor at a time.
    """

    name: str
    magic: re.Pattern[bytes]
    load: Callable[[], _Library]
    padding: bool
    input_bytes: int


def _gzip() -> _Library:
    import zlib

    return _Zlib, (zlib.error,)


def _bzip2() -> _Library:
    import bz2

    return bz2.BZ2Decompressor, (OSError, ValueError)


def _xz() -> _Library:
    import lzma

    return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), (lzma.LZMAError,)


def _zstandard() -> _Library:
    zstandard = load_extra("zstandard", "zstd", "files compressed with zstandard")
    return lambda: _Zstandard(zstandard.ZstdDecompressor().decompressobj()), (zstandard.ZstdError,)


COMPRESSIONS = (
    Compression("gzip", re.compile(rb"\x1f\x8b\x08"), _gzip, padding=True, input_bytes=_INPUT_BYTES),
    Compression(
        "bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), _bzip2, padding=False, input_bytes=_INPUT_BYTES
    ),
    Compression("xz", re.compile(rb"\xfd7zXZ\x00"), _xz, padding=True, input_bytes=_INPUT_BYTES),
    Compression(
        "zstandard", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _zstandard, padding=False,
        input_bytes=_ZSTD_INPUT_BYTES,
    ),
)  # fmt: skip


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
    new_decompressor, errors = compression.load()
    pending = b""
    position = 0  # of the first byte of `pending` in the file
    first = True
    while True:
        while len(pending) < MAGIC_BYTES and (block := next(blocks, b"")):
            pending += block
        if not pending:
            return
        if not first and not compression.magic.match(pending):
            if not compression.padding or pending.strip(b"\0"):
                raise CorpusError(
                    f"{name}: unexpected data at byte {position:,}, after the end of the {compression.name} data; the "
                    "file is damaged or was appended to: copy or compress it again"
                )
            position, pending = position + len(pending), b""
            continue
        first = False
        member = new_decompressor()
        try:
            while not member.eof:
                piece = b""
                if member.needs_input:
                    pending = pending or next(blocks, b"")
                    piece, pending = pending[: compression.input_bytes], pending[compression.input_bytes :]
                    position += len(piece)
                text = member.decompress(piece, _OUTPUT_BYTES)
                if text:
                    yield text
                elif not piece and member.needs_input:
                    raise CorpusError(
                        f"{name}: the {compression.name} data ends too early, at byte {position:,}; the file was cut "
                        "short: copy it again"
                    )
        except errors as error:
            raise CorpusError(
                f"{name}: damaged {compression.name} data before byte {position:,} ({error}); copy it again"
            ) from error
        position -= len(member.unused_data)
        pending = member.unused_data + pending


class _Zlib:
    """The decompressor of a gzip member, with the interface of bz2 and lzma."""

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
    """The decompressor of a zstandard frame, with the interface of bz2 and lzma; it cannot limit its output."""

    needs_input = True

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:  # noqa: ARG002
        return bytes(self._frame.decompress(data))
