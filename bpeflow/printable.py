"""GPT-2's printable form of bytes, in which vocab.json and merges.txt write tokens.

Every byte has one character. Bytes that print as a Latin-1 character of their own keep it; the other 68 (controls, the
space, the soft hyphen) take the code points from 256 on, in order. So a space is ``Ġ`` and a newline ``Ċ``.
Source: ``bytes_to_unicode`` of OpenAI's GPT-2 release.
"""

from __future__ import annotations

import codecs

_PRINTABLE_BYTES = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTABLE_BYTES]

#: ``BYTE_CHARACTERS[byte]`` is the byte's character.
BYTE_CHARACTERS = "".join(chr(b) if b in _PRINTABLE_BYTES else chr(256 + _OTHER_BYTES.index(b)) for b in range(256))

#: All bytes in the order of their characters: the order of HuggingFace's byte-level alphabet.
BYTES_BY_CHARACTER = tuple(sorted(range(256), key=BYTE_CHARACTERS.__getitem__))

_BYTE_OF = codecs.charmap_build(BYTE_CHARACTERS)


def to_printable(token: bytes) -> str:
    """Write bytes in printable form: ``b" the"`` → ``"Ġthe"``."""
    return codecs.charmap_decode(token, "strict", BYTE_CHARACTERS)[0]


def from_printable(text: str) -> bytes | None:
    """Read printable form back: ``"Ġthe"`` → ``b" the"``; None when a character is not one of the 256."""
    try:
        return codecs.charmap_encode(text, "strict", _BYTE_OF)[0]
    except UnicodeEncodeError:
        return None
