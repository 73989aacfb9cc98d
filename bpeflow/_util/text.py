"""Policies for text that cannot be used as it is, and formatting of messages, sizes and counts for people."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from mmap import mmap
from pathlib import Path
from typing import Any, Literal
from unicodedata import east_asian_width

from bpeflow.errors import InputTypeError

#: Text in UTF-8, in memory or in a mapped file.
Utf8 = bytes | bytearray | memoryview | mmap

#: How to handle input that is not UTF-8: raise an error, replace invalid bytes by U+FFFD, or skip the document.
InvalidUtf8Policy = Literal["error", "replace", "skip"]

#: The format of input files: by their names, or one of the three.
InputFormat = Literal["auto", "text", "jsonl", "parquet"]

#: How to handle a record without text: raise an error, or leave it out.
BadRecordsPolicy = Literal["error", "skip"]

#: How to handle text that a custom pattern does not match: raise an error, isolate it (each stretch between two matches
#: is a pre-token, as with HuggingFace's ``Split`` and its behavior ``Isolated``), or drop it.
UnmatchedPolicy = Literal["error", "isolate", "drop"]

#: A split pattern: a name, a regular expression, or several of them, each of which splits the pieces of the one before.
Pattern = str | tuple[str, ...]

#: A step of a normalizer: one of Unicode's normalization forms, or each character in lower case.
NormalizerName = Literal["nfc", "nfd", "nfkc", "nfkd", "lowercase"]

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


def as_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the argument `name` as a path. Raises `InputTypeError` if it is none, or empty (this folder)."""
    if not isinstance(value, str | os.PathLike) or value == "":
        raise InputTypeError(f"{name} is {short_repr(value)}; it must be a path")
    return Path(value)


#: Settings that replace or discard files. No message suggests them for a misspelled name.
_NEVER_SUGGESTED = ("overwrite", "restart")


def close_match(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` is most likely a misspelling of; None if none is near.

    Flags and settings that replace or discard files are left out.
    """
    from difflib import get_close_matches  # only needed after a mistake

    known = [other for other in known if other.strip("-") not in _NEVER_SUGGESTED]
    return next(iter(get_close_matches(word, known, 1, cutoff=0.7)), None)  # `cl100k_base` is still like `cl100k`


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'gpt2'?"`` for the nearest known word; an empty string if none is near."""
    close = close_match(word, known)
    return "" if close is None else f"; did you mean {close!r}?"


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that is none of the known ones."""
    known = [*known]
    hint = suggestion(str(name).lower(), known) or ";"
    return f"unknown {kind} {name!r}{hint} there are: {', '.join(known)}"


def steps_of(pattern: Pattern) -> tuple[str, ...]:
    """Return the names and regular expressions that a pattern consists of."""
    return (pattern,) if isinstance(pattern, str) else pattern


def count_words(token: bytes) -> int:
    r"""Return the number of words, which Unicode white space separates, in the whole characters of a token.

    >>> count_words(" of\u3000the ".encode()), count_words(b" of\xe3\x80"), count_words(b"\x80the")
    (2, 1, 1)
    """
    return len(token.decode(errors="ignore").split())


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun: ``"1 file"``, ``"1,200 files"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size: float) -> str:
    """Format a number of bytes: ``"150.3 MB"``, ``"12.0 kB"``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:.0f} bytes"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return each path's last part, with as many folders before it as distinguish it from the other paths.

    >>> short_names(["runs/a/owt", "runs/b/owt", "data/web.txt"])
    {'runs/a/owt': 'a/owt', 'runs/b/owt': 'b/owt', 'data/web.txt': 'web.txt'}
    """
    folders, names = {path: os.path.normpath(path).split("/") for path in paths}, {}
    for path in paths:
        parts = folders[path]
        others = [folders[other] for other in paths if other != path]
        length = next((n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others)), None)
        names[path] = path if length is None else "/".join(parts[-length:])
    return names


def show_token(token: bytes, width: int) -> str:
    r"""Return a token as a Python literal of at most `width` terminal columns, which must be 3 or more.

    Tokens that are not UTF-8 are shown as bytes. A repeated string is shown once where that is shorter, and a token
    that does not fit is cut.

    >>> print(show_token(b" the", 40), show_token(b"\xe2\x80", 40), show_token(b" " * 3776, 40))
    ' the' b'\xe2\x80' ' ' × 3776
    >>> print(show_token(b"donaudampfschifffahrt", 12))
    'donaudamp'…
    """
    text = token.decode(errors="surrogateescape")
    shown = _literal(text)
    period = (text + text).find(text, 1)
    if 0 < period < len(text):
        shown = min(shown, f"{_literal(text[:period])} × {len(text) // period}", key=_columns)
    if _columns(shown) <= width:
        return shown
    cut = (f"{_literal(text[:length])}…" for length in range(min(len(text), width), -1, -1))
    return next((part for part in cut if _columns(part) <= width), "…")


def _literal(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return repr(text.encode(errors="surrogateescape"))
    return repr(text)


def _columns(text: str) -> int:
    """Return an upper bound on the columns that a text takes on a terminal."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


class Shown:
    """A result of which IPython shows the text, as `print` does, and not the `repr`."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002
        printer.text(str(self))


class Described(Shown):
    """A result that `print` and notebooks show as labelled lines, without rich, which takes time to import."""

    def describe(self) -> Iterator[tuple[str, str]]:
        """Yield labelled lines. One without a label belongs to the line before it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(f"{label:<9}{text}".rstrip() for label, text in self.describe())

    def _repr_html_(self) -> str:
        from html import escape  # only needed in notebooks

        return f"<pre>{escape(str(self))}</pre>"
