"""Content: files whose first bytes show that they are not in the format that they would be read as."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence

from bpeflow.corpus.formats.compression import Compression, detect_compression
from bpeflow.errors import CorpusError

log = logging.getLogger(__name__)

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
