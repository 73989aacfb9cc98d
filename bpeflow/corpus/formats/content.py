"""The content of a file by its first bytes: compressed, and how to decompress it, or not of the format expected.

Every decompressor is asked for a bounded number of bytes at a time, however much its input decompresses to. A file of a
few kilobytes that decompresses to terabytes therefore takes time, but no memory.

File objects would be shorter, but lose data in silence: those of bz2 and lzma ignore everything from the first byte
that does not start another member, so also what follows xz's padding, and the package zstandard's ends a truncated file
like a complete one.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple, Protocol

from bpeflow._util.extras import load_extra
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

#: Bytes at the start of a file to recognise it by. Larger: more files with a long first line are recognised as JSON
#: Lines for certain; smaller: less to read of each file of a corpus of many.
START_BYTES = 4096

_UTF8_REMEDY = "convert it to UTF-8 (iconv -f {0} -t UTF-8)"

#: What files begin with, and their names and remedies in messages. Text in UTF-8 does not begin so.
_KINDS = (
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "UTF-32", _UTF8_REMEDY.format("UTF-32")),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16", _UTF8_REMEDY.format("UTF-16")),
    # Without a byte order mark: ASCII, whose other bytes are zero. That would be valid UTF-8.
    (re.compile(rb"([^\0]\0){8}"), "UTF-16", _UTF8_REMEDY.format("UTF-16LE")),
    (re.compile(rb"(\0[^\0]){8}"), "UTF-16", _UTF8_REMEDY.format("UTF-16BE")),
    (re.compile(rb"PAR1[\0-\x08\x0e-\x1f]"), "Parquet", "use input_format: parquet, or name it .parquet"),
    (re.compile(rb"PK\x03\x04"), "a zip archive", "unpack it"),
    (re.compile(rb".{257}ustar(\0|  \0)", re.DOTALL), "a tar archive", "unpack it"),
)

_KEY = re.compile(rb'\{\s*"([^"\\]|\\.)*"\s*:')

log = logging.getLogger(__name__)


class _Decompressor(Protocol):
    """The common interface of the decompressors of bz2, lzma and zstd. `_Gzip` gives it to zlib's."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


_Library = tuple[Callable[[], _Decompressor], type[Exception]]


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


def check_content(start: bytes, name: str, compression: Compression | None = None) -> None:
    """Check that a file that is to be read as text or JSON Lines is not something else.

    Args:
        start: the first `START_BYTES` bytes of the file, after decompression.
        name: the name of the file for messages.
        compression: the compression of the file.

    Raises:
        CorpusError: it is UTF-16, UTF-32, Parquet or an archive, or compressed twice. The message has the remedy.
    """
    for magic, kind, remedy in _KINDS:
        if magic.match(start):
            if compression:
                remedy = f"decompress it, then {remedy}"
            raise CorpusError(f"{name} is {kind}{_inside(compression)}: {remedy}")
    if compression and (inner := detect_compression(start)):
        raise CorpusError(f"{name} is {inner.name}{_inside(compression)}, compressed twice: decompress it once")


def _inside(compression: Compression | None) -> str:
    return f" inside {compression.name}" if compression else ""


def is_json_lines(start: bytes) -> bool:
    """Return whether the first line of a file is a JSON object, given its first `START_BYTES` bytes.

    Of a line that is longer than that, only the beginning is checked.
    """
    line, end, _ = start.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if not _KEY.match(line):
        return False
    if not end and len(start) >= START_BYTES:
        return True
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def warn_json_lines(names: Sequence[str]) -> None:
    """Warn about files that look like JSON Lines and are read as text."""
    if names:
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        log.warning(
            "%s%s: read as plain text, braces and field names included, but looks like JSON Lines: use input_format: "
            "jsonl, or name it .jsonl (or input_format: text if that is meant)",
            names[0],
            others,
        )
