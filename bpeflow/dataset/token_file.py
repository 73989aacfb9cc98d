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
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import atomic_path, hold_part, remove_dead_parts, sync_file, sync_folder
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


class TokenWriter:
    """Appends to a token file; made by `new_token_file`.

    Attributes:
        tokens: how many were written.
        documents: how many documents have ended.
        facts: what else the sidecar shall hold; may be added to until the end.
    """

    def __init__(
        self, path: Path, dtype: DtypeName, facts: Mapping[str, Any], ids: FileIO, offsets: FileIO | None
    ) -> None:
        self.tokens = 0
        self.documents = 0
        self.facts = dict(facts)
        self._path = path
        self._dtype = dtype
        self._ids = ids
        self._offsets = offsets
        self._write_offsets(np.zeros(1, np.int64))

    def write(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        """Append ids; ``ends``: how many of these ids stand before the end of each document that ends among them.

        Raises `OSError`, which names the file.
        """
        _write_array(self._ids, ids.astype(DTYPES[self._dtype], copy=False), self._path)
        self._write_offsets(ends + self.tokens)
        self.tokens += len(ids)
        self.documents += len(ends)

    def sidecar(self) -> str:
        """The sidecar of what has been written, as JSON."""
        known = {
            "format": FORMAT,
            "version": VERSION,
            "dtype": self._dtype,
            "byte_order": "little",
            "tokens": self.tokens,
            "documents": self.documents,
            "index": self._offsets is not None,
        }
        return json.dumps({**known, **self.facts}, indent=2, ensure_ascii=False) + "\n"

    def _write_offsets(self, offsets: NDArray[np.int64]) -> None:
        if self._offsets is not None:
            _write_array(self._offsets, offsets.astype(OFFSET_DTYPE), index_path(self._path))


@contextmanager
def new_token_file(
    path: Path, dtype: DtypeName, facts: Mapping[str, Any], index: bool = False
) -> Iterator[TokenWriter]:
    """Write a token file with sidecar and, if wanted, index: all of them, or nothing at all if the block raises.

    They get their names when the block has ended well: first the sidecar, which tells whether the index is theirs, and
    the ids last: where the ids are, all is. (The ids of an earlier file of this name go before that: nobody shall read
    them by the new sidecar, which may fit them in length. So does an index that it had and this one has not, while the
    earlier sidecar still tells whose it is. What a killed process has left is removed.) ``facts``: what the sidecar
    shall hold besides what it must; at least ``{"tokenizer": {"sha256": tokenizer_hash(…)}}``. Raises `FormatError` and
    `OSError` as `bpeflow.atomic.atomic_path` does.
    """
    remove_dead_parts(path, sidecar_path(path), index_path(path))
    written: dict[Path, int] = {}  # the inodes of all files, the ids last

    def remove_what_is_beside(error: type[BaseException] | None, *_: object) -> None:
        """Remove what has its name already when the ids do not get theirs: Ctrl-C, or a disk that is full after all."""
        if error is not None and written:
            *beside, (ids_name, ids_inode) = written.items()
            if not _is(ids_name, ids_inode):  # Ctrl-C may come when all is done, too
                for name, inode in beside:
                    with suppress(OSError):
                        if _is(name, inode):
                            name.unlink()

    with ExitStack() as stack:  # which ends in the opposite order
        stack.push(remove_what_is_beside)
        ids_file = stack.enter_context(atomic_path(path))
        index_file = stack.enter_context(atomic_path(index_path(path))) if index else None
        sidecar_file = stack.enter_context(atomic_path(sidecar_path(path)))
        with ExitStack() as streams:
            ids = streams.enter_context(FileIO(os.fspath(ids_file), "w"))
            hold_part(ids)
            offsets = streams.enter_context(FileIO(os.fspath(index_file), "w")) if index_file else None
            writer = TokenWriter(path, dtype, facts, ids, offsets)
            yield writer
        # In a file's name, what is not UTF-8 becomes \udcXX, which JSON reads as such.
        with _naming(sidecar_path(path)):
            sidecar_file.write_text(writer.sidecar(), encoding="utf-8", errors="backslashreplace")
        for name, file in ((sidecar_path(path), sidecar_file), (index_path(path), index_file), (path, ids_file)):
            if file is not None:
                written[Path(os.path.realpath(name))] = file.stat().st_ino
        if sidecar_path(path).exists():
            with _naming(path):
                _remove_earlier_ids(path, [file for file in (ids_file, sidecar_file, index_file) if file is not None])
                if not index and _has_index(path):
                    _remove(index_path(path))


def _is(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False


def _has_index(path: Path) -> bool:
    """Whether an index belongs to the token file that stands there already."""
    try:
        return read_sidecar(path).index
    except (FormatError, OSError):
        return False


def _remove_earlier_ids(path: Path, written: Sequence[Path]) -> None:
    """Remove the ids that the new ones replace, for good; when these are on the disk, and nothing but names is left."""
    for file in written:
        sync_file(file)
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, or the one that a link leads to, for good."""
    file = Path(os.path.realpath(path))
    file.unlink(missing_ok=True)
    sync_folder(file.parent)


def _write_array(stream: FileIO, array: NDArray[Any], path: Path) -> None:
    left = np.ascontiguousarray(array).view(np.uint8).data
    with _naming(path):
        while left:
            left = left[stream.write(left) :]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of input and output, which know of a number only."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
