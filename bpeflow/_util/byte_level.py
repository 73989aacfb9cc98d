"""Bytes in GPT-2's printable form, in which byte-level BPE is written to files."""

from __future__ import annotations

import codecs

#: All bytes that occur in UTF-8.
UTF8_BYTES = (*range(0xC0), *range(0xC2, 0xF5))

# GPT-2's files write each byte as one character. Printable bytes are the characters of their own number (Latin-1), and
# the other bytes, in ascending order, are the characters from U+0100. Source: bytes_to_unicode in GPT-2's encoder.py.
_PRINTABLE_BYTES = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTABLE_BYTES]

#: The character of each byte, indexed by byte.
BYTE_CHARACTERS = "".join(chr(b) if b in _PRINTABLE_BYTES else chr(256 + _OTHER_BYTES.index(b)) for b in range(256))

#: All bytes in ascending order of their characters, which is the order of HuggingFace's byte-level alphabet.
BYTES_BY_CHARACTER = tuple(sorted(range(256), key=BYTE_CHARACTERS.__getitem__))
_BYTE_OF = codecs.charmap_build(BYTE_CHARACTERS)


def to_printable(token: bytes) -> str:
    """Convert bytes to printable form.

    >>> to_printable(b" the")
    'Ġthe'
    """
    return codecs.charmap_decode(token, "strict", BYTE_CHARACTERS)[0]


def from_printable(text: str) -> bytes | None:
    """Convert printable form back to bytes; None if a character is not one of the 256.

    >>> from_printable("Ġthe")
    b' the'
    """
    try:
        return codecs.charmap_encode(text, "strict", _BYTE_OF)[0]
    except UnicodeEncodeError:
        return None


def mergeable_bytes(special_token: str) -> bytes:
    """Return the bytes that HuggingFace takes a special token for while merging; empty if no merge can yield it.

    HuggingFace compares tokens in printable form. So ``"the"`` is the result of merging ``t h e``, and ``"Ġthe"`` is
    the result of merging a space and ``the``. ``"a b"`` contains a space, which no printable form does, so no merge can
    yield it.
    """
    return from_printable(special_token) or b""
