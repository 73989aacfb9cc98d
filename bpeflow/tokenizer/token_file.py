"""Token files: the ids of a corpus as one flat array, with a sidecar that says what they are, and maybe an index.

=================  ====================================================================================================
``train.bin``      the ids, one after another: little-endian uint16 or uint32, and nothing else
``train.bin.json`` the sidecar: dtype, numbers of tokens and documents, the tokenizer's hash, where the text came from
``train.bin.idx``  the index, if it was asked for: little-endian uint64, the place among the tokens at which each
                   document starts, and after the last one the number of tokens: documents + 1 numbers
=================  ====================================================================================================

The plain array is what training loops map (nanoGPT's ``np.memmap(path, dtype=np.uint16)``); all else stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import ConfigError, FormatError

DtypeName = Literal["uint16", "uint32"]
Ids = NDArray[np.uint16] | NDArray[np.uint32]
Offsets = NDArray[np.uint64]

#: What the sidecar calls the format, and the version of it that is written and read here.
FORMAT, VERSION = "bpeflow tokens", 1

DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
OFFSET_DTYPE = np.dtype("<u8")


@dataclass(frozen=True)
class TokenFile:
    """What the sidecar says of a token file; checked against the sizes of the files.

    Attributes:
        path: the ids.
        dtype: their type, ``uint16`` or ``uint32``.
        tokens: how many there are.
        documents: how many documents they are from.
        index: whether the offsets of the documents are in a file beside it.
        tokenizer_hash: the `tokenizer_hash` of the tokenizer that made them.
        facts: all that the sidecar holds.
    """

    path: Path
    dtype: DtypeName
    tokens: int
    documents: int
    index: bool
    tokenizer_hash: str
    facts: Mapping[str, Any]


def load_tokens(path: str | Path) -> Ids:
    """Map a token file into memory, read-only: a 1-dimensional array of uint16 or uint32, whose pages are read on use.

    Raises `FormatError` where the file is not as long as its sidecar says, and where the sidecar is missing or damaged;
    `OSError` where there is no such file.

    >>> tokens = load_tokens("train.bin")  # doctest: +SKIP
    >>> tokens.dtype, tokens[:3]  # doctest: +SKIP
    (dtype('uint16'), memmap([ 464,  262, 1110], dtype=uint16))
    """
    file = open_token_file(path)
    return _map(file.path, DTYPES[file.dtype], file.tokens)


def load_document_offsets(path: str | Path) -> Offsets:
    """Map the index of a token file: document ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``, its end token included.

    Raises `FormatError` where the file has no index, and as `load_tokens` does.
    """
    file = open_token_file(path)
    if not file.index:
        raise FormatError(f"{file.path}: has no index of its documents; encode with --index (index=True) to have one")
    offsets: Offsets = _map(index_path(file.path), OFFSET_DTYPE, file.documents + 1)
    if offsets[0] != 0 or offsets[-1] != file.tokens:
        raise FormatError(
            f"{index_path(file.path)}: goes from {offsets[0]} to {offsets[-1]}, but there are {file.tokens} tokens"
        )
    return offsets


def read_ids(file: TokenFile, stream: BinaryIO, count: int) -> Ids:
    """Read the next ids of a token file from `stream`, which is open at the place.

    Raises `FormatError` where there are fewer: the file was cut short meanwhile.
    """
    dtype = DTYPES[file.dtype]
    ids = np.fromfile(stream, dtype, count)
    if len(ids) < count:
        raise FormatError(f"{file.path}: became shorter while it was read; run again when it is complete")
    return ids.astype(dtype.newbyteorder("="), copy=False)


def open_token_file(path: str | Path) -> TokenFile:
    """Read the sidecar of a token file, and see that the files have their sizes. Raises as `load_tokens` does."""
    path = Path(path)
    if path.is_dir():
        raise FormatError(f"{path}: is a folder, and no token file")
    size = path.stat().st_size
    file = read_sidecar(path)
    _check_size(path, size, file.tokens, DTYPES[file.dtype])
    if file.index:
        offsets = index_path(path)
        if not offsets.is_file():
            raise FormatError(f"{offsets}: is missing, though {sidecar_path(path)} tells of it; copy it too")
        _check_size(offsets, offsets.stat().st_size, file.documents + 1, OFFSET_DTYPE)
    return file


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of a token file is."""
    return path.parent / f"{path.name}.json"


def index_path(path: Path) -> Path:
    """Where the index of a token file is, if it has one."""
    return path.parent / f"{path.name}.idx"


def choose_dtype(dtype: str, vocab_size: int) -> DtypeName:
    """Settle what ``auto`` means: uint16 where it holds all ids of the vocabulary, else uint32.

    Raises `ConfigError` for a dtype that is unknown or too small.
    """
    if dtype == "auto":
        return "uint16" if vocab_size <= 1 << 16 else "uint32"
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: {dtype!r} is none of auto, {', '.join(DTYPES)}")
    if dtype == "uint16" and vocab_size > 1 << 16:
        raise ConfigError(f"dtype: uint16 holds ids up to 65,535, and the vocabulary has {vocab_size:,}; use uint32")
    return dtype  # type: ignore[return-value]


def _map(path: Path, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
    if length:
        return np.memmap(path, dtype, mode="r", shape=(length,))
    empty = np.empty(0, dtype)  # nothing cannot be mapped
    empty.flags.writeable = False
    return empty


def _check_size(path: Path, size: int, length: int, dtype: np.dtype[Any]) -> None:
    if size != length * dtype.itemsize:
        state = "cut short" if size < length * dtype.itemsize else "too long"
        raise FormatError(
            f"{path}: {state}: {size:,} bytes, and the sidecar tells of {length:,} numbers of {dtype.itemsize} bytes; "
            "copy it again, or encode again"
        )


def read_sidecar(path: Path) -> TokenFile:
    sidecar = sidecar_path(path)
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(
            f"{path}: there is no {sidecar.name} beside it, which says of what type its tokens are; copy it too"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{sidecar}: not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FormatError(f"{sidecar}: not the sidecar of a token file: it has no format: {FORMAT!r}")
    if facts.get("version") != VERSION:
        raise FormatError(f"{sidecar}: has version {facts.get('version')!r}, this bpeflow reads {VERSION}; update it")
    return TokenFile(
        path=path,
        dtype=_field(facts, sidecar, "dtype", lambda value: value in list(DTYPES)),
        tokens=_field(facts, sidecar, "tokens", _is_number),
        documents=_field(facts, sidecar, "documents", _is_number),
        index=_field(facts, sidecar, "index", lambda value: isinstance(value, bool)),
        tokenizer_hash=_field(
            facts.get("tokenizer"), sidecar, "sha256", lambda value: isinstance(value, str), "tokenizer."
        ),
        facts=facts,
    )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _field(facts: Any, sidecar: Path, key: str, fits: Callable[[object], bool], section: str = "") -> Any:
    value = facts.get(key) if isinstance(facts, dict) else None
    if not fits(value):
        raise FormatError(f"{sidecar}: {section}{key} is missing or damaged ({value!r}); encode again")
    return value
