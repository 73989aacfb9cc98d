"""Text as it comes from users, checked and turned into the UTF-8 that encoders take."""

from __future__ import annotations

from bpeflow.errors import InputTypeError, InvalidTextError


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


def checked_utf8(text: str | bytes) -> bytes:
    """The UTF-8 form of a text, or bytes that are UTF-8 already. Raises as `to_utf8`, and for bytes that are not."""
    if not isinstance(text, bytes):
        return to_utf8(text)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise InvalidTextError(f"the bytes are not UTF-8: {error.reason} at byte {error.start}") from None
    return text
