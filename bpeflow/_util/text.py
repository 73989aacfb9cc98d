"""Policies for text that cannot be used as it is, and formatting of messages, sizes and counts for people."""

from __future__ import annotations

from typing import Literal

#: How to handle input that is not UTF-8: raise an error, replace invalid bytes by U+FFFD, or skip the document.
InvalidUtf8Policy = Literal["error", "replace", "skip"]

#: How to handle text that a custom pattern does not match: raise an error, isolate it (each stretch between two matches
#: is a pre-token, as with HuggingFace's ``Split`` and its behavior ``Isolated``), or drop it.
UnmatchedPolicy = Literal["error", "isolate", "drop"]


def one_line(text: str) -> str:
    r"""Escape characters that end the line, move the cursor or colour the screen: a newline becomes ``\n``.

    File names may contain any of them, and tools expect a message to be one line.

    >>> one_line("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun: ``"1 file"``, ``"1,200 files"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size: float) -> str:
    """Format a number of bytes: ``"150.3 MB"``, ``"12.0 kB"``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:.0f} bytes"
