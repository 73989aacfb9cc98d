"""Policies for bad input, and formatting of messages, sizes and counts for people."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

#: How to handle input that is not UTF-8: raise an error, replace invalid bytes by U+FFFD, or skip the document.
InvalidUtf8Policy = Literal["error", "replace", "skip"]

#: How to handle a record without text: raise an error, or leave it out.
BadRecordsPolicy = Literal["error", "skip"]

#: Shortens values in error messages, which can be as large as a file, or contain themselves.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def one_line(text: str) -> str:
    r"""Escape characters that end the line, move the cursor or colour the screen: a newline becomes ``\n``.

    File names may contain any of them, and tools expect a message to be one line.

    >>> one_line("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def short_repr(value: object) -> str:
    """Return the beginning of a value's `repr` for an error message, in characters that can be printed."""
    return _SHORT.repr(value).encode("utf-8", "backslashreplace").decode()


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun: ``"1 file"``, ``"1,200 files"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size: float) -> str:
    """Format a number of bytes: ``"150.3 MB"``, ``"12.0 kB"``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:.0f} bytes"


#: Shortest text that is shown as a repetition, and characters of the longest part that is looked for.
_SHORTEST_REPETITION, _LONGEST_PART = 16, 8

_REPETITION = re.compile(rf"(.{{1,{_LONGEST_PART}}}?)\1+", re.DOTALL)


def show_token(text: str, limit: int = 60) -> str:
    """Return the text of a token in quotes: a long repetition as such, any other cut off after `limit` characters.

    Web text contains runs of thousands of spaces, which become tokens.

    >>> show_token(" the"), show_token(" " * 3776), show_token("x" + "=-" * 40, 10)
    ("' the'", "' ' × 3776", "'x=-=-=-=-='…")
    """
    repeated = _REPETITION.fullmatch(text) if len(text) >= _SHORTEST_REPETITION else None
    if repeated:
        return f"{repeated[1]!r} × {len(text) // len(repeated[1])}"
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}…"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return each path's last part, with as many folders before it as tell it from the others.

    >>> short_names(["runs/a/owt", "runs/b/owt", "data/web.txt"])
    {'runs/a/owt': 'a/owt', 'runs/b/owt': 'b/owt', 'data/web.txt': 'web.txt'}
    """
    names = {}
    for path in paths:
        parts = PurePath(path).parts
        others = [PurePath(other).parts for other in paths if other != path]
        length = next((n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others)), None)
        names[path] = path if length is None else str(PurePath(*parts[-length:]))
    return names
