"""Policies for bad input, and formatting of messages, sizes and counts for people."""

from __future__ import annotations

import reprlib
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
