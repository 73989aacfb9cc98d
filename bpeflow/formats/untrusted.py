"""Reading of untrusted files: whatever they contain, the result is valid data or a `FormatError`."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.byte_level import UTF8_BYTES
from bpeflow._util.packed import PackedBytes
from bpeflow._util.text import Pattern, short_repr
from bpeflow.errors import FormatError, PatternError, TokenizerNotFoundError
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.vocab import MOST_GAPS

PatternType = TypeVar("PatternType", bound=Pattern)

#: What bpeflow does not read, by name or suffix.
UNSUPPORTED = {
    "vocab.txt": "a WordPiece vocabulary, which transformers reads; bpeflow reads byte-level BPE only",
    ".model": "a SentencePiece model, which sentencepiece reads; bpeflow reads byte-level BPE only",
    ".pkl": "a pickle, which can run any code when it is read: if you trust it, give Tokenizer() its values",
}


# ---- files ----


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises `FormatError` if it cannot be read, and `TokenizerNotFoundError` if it is missing."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TokenizerNotFoundError(f"{path}: cannot be read: {error.strerror}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_text(path: Path) -> str:
    """Read a UTF-8 file. Raises `FormatError`, with the position, if it is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: {UNSUPPORTED.get(path.suffix, f'not UTF-8: {error}')}") from error


def read_json(path: Path, text: str | None = None) -> Part:
    """Read a JSON object from a file, or from `text`. Raises `FormatError` for other content and for duplicate keys."""

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            [(duplicate, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise FormatError(f"{path}: duplicate key {short_repr(duplicate)} in one object")
        return found

    text = read_text(path) if text is None else text
    try:
        with _without_garbage_collection():
            content = json.loads(text, object_pairs_hook=to_dict)
    except FormatError:
        raise
    except RecursionError as error:
        raise FormatError(f"{path}: not a tokenizer: its brackets are nested too deeply") from error
    except ValueError as error:  # not JSON, or an integer with thousands of digits
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: need one JSON object, found {short_repr(content)}")
    return Part(path, content)


@dataclass
class Part:
    """A part of a JSON file, and its place there. Whatever is missing or of another kind has parts with the value None.

    >>> model = Part(Path("tokenizer.json"), {"model": {"type": "BPE"}})["model"]
    >>> model.type, model["dropout"].value, str(model["merges"].need("a list"))
    ('BPE', None, 'tokenizer.json: model.merges: need a list, found None')

    Attributes:
        path: the file.
        value: the value.
        where: its place; empty for the whole content.
    """

    path: Path
    value: Any
    where: str = ""

    def __getitem__(self, key: str) -> Part:
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Part(self.path, value, f"{self.where}.{key}" if self.where else key)

    def entries(self) -> list[Part]:
        """Return the entries of a list."""
        values = self.value if isinstance(self.value, list) else []
        return [Part(self.path, value, f"{self.where}[{index}]") for index, value in enumerate(values)]

    @property
    def type(self) -> object:
        """The type that an object names."""
        return self.value.get("type") if isinstance(self.value, dict) else None

    def flag(self, default: bool = False) -> bool:
        """Return a value that is true, false or missing. Raises `FormatError` for any other."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self.need("true or false")
        return self.value

    def check_keys(self, known: Collection[str]) -> None:
        """Raise `FormatError` if an object has other keys."""
        for key in self.value:
            if key not in known:
                raise self.error(f"unknown key {short_repr(key)}; known keys are {', '.join(known)}")

    def error(self, problem: str) -> FormatError:
        """Return an error that names the place."""
        return FormatError(": ".join(filter(None, [str(self.path), self.where, problem])))

    def need(self, need: str) -> FormatError:
        """Return the error for a value of another kind."""
        return self.error(f"need {need}, found {short_repr(self.value)}")

    def refusal(self, reason: str) -> FormatError:
        """Return the error for a part that bpeflow does not support."""
        return self.error(f"{short_repr(self.description)} is not supported: {reason}")

    @property
    def description(self) -> object:
        """The type, or the types of the steps of a sequence, or the value if it has no type."""
        if self.type == "Sequence":
            steps = next((self[key].entries() for key, value in self.value.items() if isinstance(value, list)), [])
            return f"Sequence of {', '.join(str(step.type) for step in steps)}"
        return self.value if self.type is None else self.type


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector while many lists are made. It would inspect them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# ---- values ----


def check_ids(part: Part) -> dict[str, int]:
    """Return a mapping of tokens to distinct ids that are not far higher than their number.

    Raises `FormatError` for any other value.
    """
    value = part.value
    if not isinstance(value, dict) or not {*map(type, value.values())} <= {int}:
        raise part.need("an object of token: id, the token in printable form")
    ids = value.values()
    if len({*ids}) < len(ids) or not 0 <= min(ids, default=0) <= max(ids, default=0) < len(ids) + MOST_GAPS:
        raise _unfit_ids(part.path, ids, value)
    return value


def place_tokens(path: Path, ids: Collection[int], tokens: PackedBytes) -> PackedBytes:
    """Return the tokens indexed by id, with ``b""`` for unused ids.

    Raises `FormatError` if there are none, or an id is negative, assigned twice, or far higher than their number.
    """
    if not ids:
        raise FormatError(f"{path}: no tokens")
    try:
        return tokens.placed(np.fromiter(ids, np.int64, len(ids)), len(ids) + MOST_GAPS)
    except (ValueError, OverflowError):
        raise _unfit_ids(path, ids, tokens) from None


def _unfit_ids(path: Path, ids: Collection[int], tokens: Iterable[str | bytes]) -> FormatError:
    [(token_id, count)] = Counter(ids).most_common(1)
    if count > 1:
        first, second, *_ = (token for i, token in zip(ids, tokens, strict=True) if i == token_id)
        return FormatError(f"{path}: two tokens have id {token_id}: {short_repr(first)} and {short_repr(second)}")
    return FormatError(f"{path}: ids from {min(ids)} to {max(ids)}, but only {len(ids)} tokens")


def has_duplicates(values: NDArray[Any]) -> bool:
    """Return whether two values of a one-dimensional array are equal."""
    values = np.sort(values)  # `numpy.unique` takes thirty times as long
    return bool((values[1:] == values[:-1]).any())


def check_bytes(path: Path, tokens: Iterable[bytes]) -> None:
    """Raise `FormatError` if a byte of UTF-8 has no token, because some text could not be encoded."""
    missing = {bytes([byte]) for byte in range(256)}.difference(tokens)
    if not missing.isdisjoint(bytes([byte]) for byte in UTF8_BYTES):
        raise FormatError(
            f"{path}: no token for {len(missing)} of the 256 bytes, the first of them 0x{min(missing).hex()}; bpeflow "
            "needs a byte-level vocabulary, which has a token for each byte"
        )


def check_special_tokens(part: Part) -> dict[str, int]:
    """Return a mapping of texts to distinct ids. Raises `FormatError` for any other value."""
    value = part.value
    if not isinstance(value, dict) or not all(type(i) is int and is_text(t) for t, i in value.items()):
        raise part.need("an object of text: id")
    if len(set(value.values())) != len(value):
        raise part.error("two tokens have the same id")
    return value


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that can be encoded as UTF-8, and not empty. JSON can have lone surrogates."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_pattern(pattern: PatternType, path: Path) -> PatternType:
    """Return `pattern` if it is a name or an expression of the `regex` module, or several of them.

    Raises `FormatError` otherwise.
    """
    try:
        load_pretokenizer(pattern)
    except PatternError as error:
        raise FormatError(f"{path}: {error}") from error
    return pattern
