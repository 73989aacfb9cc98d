r"""Counts as text: ``pre-token TAB count`` lines in UTF-8, which can hold pre-tokens that are not UTF-8.

Backslash, tab, CR, LF and invalid UTF-8 are written as ``\\ \t \r \n \xNN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bpeflow._util.atomic import atomic_path
from bpeflow.counting.shards import MAX_COUNT
from bpeflow.errors import FormatError

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r"}
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
_NEEDS_ESCAPE = re.compile(rb"[\\\t\n\r]")
_ESCAPE = re.compile(rb"\\(?:x[0-9a-f]{2}|.?)", re.DOTALL)

#: A count with at most as many digits as the largest one has, as `int` limits its input.
_COUNT = re.compile(rb"0*([0-9]{1,%d})" % len(str(MAX_COUNT)))


def write_tsv(path: Path, items: Iterable[tuple[bytes, int]]) -> None:
    """Write pre-tokens and their counts, in the order of `items`."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for token, count in items:
            escaped = _NEEDS_ESCAPE.sub(lambda match: _ESCAPES[match[0]], token)
            # `decode` turns invalid UTF-8 into \xNN.
            file.write(b"%s\t%d\n" % (escaped.decode("utf-8", errors="backslashreplace").encode(), count))


def read_tsv(path: Path) -> dict[bytes, int]:
    """Read lines of distinct pre-tokens. Raises `FormatError`, with the path and the line, for anything else."""
    counts: dict[bytes, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            escaped, _, digits = line.removesuffix(b"\n").partition(b"\t")
            match = _COUNT.fullmatch(digits)
            if not match or not 1 <= (count := int(match[1])) <= MAX_COUNT:
                found = repr(line) if len(line) <= 80 else f"{line[:80]!r}..."
                raise FormatError(
                    f"{where}: must be a pre-token, a tab and an integer of at least 1 and at most {MAX_COUNT}, found "
                    f"{found}"
                )
            token = _unescape(escaped, where)
            if not token:
                raise FormatError(f"{where}: an empty pre-token")
            if token in counts:
                raise FormatError(f"{where}: the pre-token {token!r} occurs twice")
            counts[token] = count
    return counts


def _unescape(escaped: bytes, where: str) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        if match[0] in _UNESCAPES:
            return _UNESCAPES[match[0]]
        if match[0].startswith(b"\\x") and len(match[0]) == 4:
            return bytes([int(match[0][2:], 16)])
        raise FormatError(f"{where}: unknown escape {match[0].decode(errors='replace')}")

    return _ESCAPE.sub(plain, escaped)
