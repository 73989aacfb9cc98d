"""How tokens are shown: text that is safe on a screen, with the bytes of broken UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import category

#: The sign of a line end.
LINE_END = "⏎"

#: Characters that are shown as a sign instead of an escape.
_SIGNS = {"\n": LINE_END, "\t": "⇥", "\r": "␍"}


class Part(NamedTuple):
    """A part of a token. *Escaped* parts are characters or bytes that cannot be shown as they are."""

    text: str
    escaped: bool


def shown_parts(token: bytes) -> Iterator[Part]:
    r"""Yield the parts of a token.

    Bytes that are not UTF-8, control characters and other invisible characters are escaped. A combining character at
    the start of a part gets a dotted circle before it, as it would otherwise change the previous character.

    >>> list(shown_parts(b"a\n\xf0\x9f"))
    [Part(text='a', escaped=False), Part(text='⏎\\xf0\\x9f', escaped=True)]
    """
    plain = escaped = ""
    for character in token.decode(errors="surrogateescape"):
        if character.isprintable():
            if escaped:
                yield Part(escaped, True)
                escaped = ""
            plain += f"◌{character}" if not plain and _combines(character) else character
        else:
            if plain:
                yield Part(plain, False)
                plain = ""
            escaped += _escape(character)
    if plain or escaped:
        yield Part(plain or escaped, not plain)


def shown(token: bytes) -> str:
    r"""Return a token as one string.

    >>> print(shown(b" the"), shown(b"\xe2\x80"))
     the \xe2\x80
    """
    return "".join(part.text for part in shown_parts(token))


def is_incomplete(token: bytes) -> bool:
    """Return whether the bytes of a token are not valid UTF-8."""
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False


def _combines(character: str) -> bool:
    return category(character).startswith("M")


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _SIGNS.get(character) or ascii(character)[1:-1]
