"""Reading files of which nothing is trusted: whatever is in them, what comes out is data or a `FormatError`."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bpeflow.errors import FormatError

#: Ids beyond the number of tokens by more than this are taken for damage: each takes 8 bytes as an entry of `Vocab`.
#: Published vocabularies have gaps of up to a few hundred.
MOST_GAPS = 1_000_000

#: Shows the beginnings only: a value may be nested in itself, or as large as the file.
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 2, 80, 80


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises `FormatError` where there is none, or where it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_text(path: Path) -> str:
    """Read a file of UTF-8. Raises `FormatError` with the place where it is not."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises `FormatError` for anything else, and for a key that stands twice in one object."""

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise FormatError(f"{path}: {shown(twice)} stands twice in one object")
        return found

    try:
        content = json.loads(read_text(path), object_pairs_hook=to_dict)
    except RecursionError as error:
        raise FormatError(f"{path}: not a tokenizer: thousands of nested brackets") from error
    except ValueError as error:  # not JSON, or an integer of thousands of digits
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: need one JSON object, found {shown(content)}")
    return content


def place_tokens(path: Path, tokens: Iterable[tuple[int, bytes]]) -> tuple[bytes, ...]:
    """Put tokens at their ids; ``b""`` stands in the gaps.

    Raises `FormatError` for an id that is negative, given twice, or far beyond the number of tokens.
    """
    by_id: dict[int, bytes] = {}
    for token_id, token in tokens:
        if token_id in by_id:
            raise FormatError(f"{path}: id {token_id} is given to {shown(by_id[token_id])} and to {shown(token)}")
        by_id[token_id] = token
    if not by_id:
        raise FormatError(f"{path}: no tokens")
    if min(by_id) < 0:
        raise FormatError(f"{path}: {shown(by_id[min(by_id)])} has the negative id {min(by_id)}")
    if max(by_id) >= len(by_id) + MOST_GAPS:
        raise FormatError(f"{path}: ids up to {max(by_id)}, but only {len(by_id)} tokens")
    return tuple(by_id.get(token_id, b"") for token_id in range(max(by_id) + 1))


def check_bytes(path: Path, tokens: Iterable[bytes]) -> None:
    """Raise `FormatError` where one of the 256 bytes has no token: there would be text that cannot be encoded."""
    missing = {bytes([byte]) for byte in range(256)}.difference(tokens)
    if missing:
        raise FormatError(
            f"{path}: no token for {len(missing)} of the 256 bytes, the first of them 0x{min(missing).hex()}; bpeflow "
            "needs byte-level vocabularies, which have all"
        )


def check_special_tokens(path: Path, value: object) -> dict[str, int]:
    """See that `value` is a mapping of texts to different ids. Raises `FormatError`."""
    if not isinstance(value, dict) or not all(type(i) is int and t and is_text(t) for t, i in value.items()):
        raise FormatError(f"{path}: special_tokens must be an object of text: id, found {shown(value)}")
    if len(set(value.values())) != len(value):
        raise FormatError(f"{path}: special_tokens: two have the same id")
    return value


def is_text(value: object) -> bool:
    """Whether `value` is a string that has a UTF-8 form; JSON can also write lone surrogates, which have none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """A value as error messages show it: its beginning."""
    return _BRIEF.repr(value).encode("utf-8", "backslashreplace").decode()
