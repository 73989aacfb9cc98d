"""Text as it comes from users, checked and turned into the UTF-8 that encoders take."""

from __future__ import annotations

from mmap import mmap

from bpeflow.errors import InputTypeError, InvalidTextError
from bpeflow.pretokenize.cuts import Utf8

_BYTES = (bytes, bytearray, memoryview, mmap)


def to_utf8(text: str, start: int = 0) -> bytes:
    """The UTF-8 form of a text that begins at character `start` of the whole.

    Raises `InputTypeError` for anything but a `str`, and `InvalidTextError` for a lone surrogate.
    """
    if not isinstance(text, str):
        raise InputTypeError(f"text to encode is a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {start + error.start}, which "
            "UTF-8 cannot hold; mend it first, for instance with text.encode('utf-16', 'surrogatepass')"
            ".decode('utf-16', 'replace')"
        ) from None


def utf8_of(text: str | Utf8) -> Utf8:
    """The UTF-8 form of a text; bytes as they are, which encoders look at. Raises as `to_utf8`."""
    if isinstance(text, memoryview):
        if not text.c_contiguous:
            raise InputTypeError("the memoryview to encode has gaps; give bytes(...) of it")
        return text.cast("B")
    return text if isinstance(text, _BYTES) else to_utf8(text)


def not_utf8(text: Utf8) -> InvalidTextError:
    """Say where bytes are not UTF-8."""
    try:
        bytes(text).decode()
    except UnicodeDecodeError as error:
        return InvalidTextError(f"the text is not UTF-8: {error.reason} at byte {error.start}")
    return InvalidTextError("the text is not UTF-8")
