"""Token files: the ids of a corpus as one flat array, a sidecar that describes it, and an optional index.

=================  =====================================================================================================
``train.bin``      the ids, concatenated: little-endian uint16 or uint32, and nothing else
``train.bin.json`` the sidecar: dtype, numbers of tokens and documents, the tokenizer's hash, the origin of the text
``train.bin.idx``  the index, on request: little-endian uint64, the position of each document's first token and, at the
                   end, the number of tokens; so documents + 1 numbers
=================  =====================================================================================================

The flat array is the format that training loops memory-map (nanoGPT: ``np.memmap(path, dtype=np.uint16)``). Everything
else is in separate files next to it.
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

#: Name and version of the format in the sidecar. Other versions are not read.
FORMAT, VERSION = "bpeflow tokens", 1

#: The dtypes of ids in the file.
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}

#: The dtype of the index in the file.
OFFSET_DTYPE = np.dtype("<u8")


@dataclass(frozen=True)
class TokenFile:
    """The description of a token file in its sidecar, checked against the sizes of the files.

    Attributes:
        path: the file with the ids.
        dtype: ``uint16`` or ``uint32``.
        tokens: number of ids.
        documents: number of documents.
        index: whether there is an index.
        tokenizer_hash: the `tokenizer_hash` of the tokenizer that encoded the corpus.
        facts: the whole content of the sidecar.
    """

    path: Path
    dtype: DtypeName
    tokens: int
    documents: int
    index: bool
    tokenizer_hash: str
    facts: Mapping[str, Any]


def sidecar_path(path: Path) -> Path:
    """Return the path of a token file's sidecar."""
    return path.parent / f"{path.name}.json"


def index_path(path: Path) -> Path:
    """Return the path of a token file's index."""
    return path.parent / f"{path.name}.idx"


def choose_dtype(dtype: str, vocab_size: int) -> DtypeName:
    """Return the dtype to write. ``auto`` is uint16 if it can hold every id of the vocabulary, else uint32.

    Raises `ConfigError` if the dtype is unknown or too small.
    """
    if dtype == "auto":
        return "uint16" if vocab_size <= 1 << 16 else "uint32"
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: {dtype!r} is not one of auto, {', '.join(DTYPES)}")
    if dtype == "uint16" and vocab_size > 1 << 16:
        raise ConfigError(f"dtype: uint16 holds ids up to 65,535, and the vocabulary has {vocab_size:,}; use uint32")
    return dtype  # type: ignore[return-value]


# ---- reading ----


def load_tokens(path: str | Path) -> Ids:
    """Memory-map the ids of a token file, read-only. Pages are read from the disk on first access.

    Args:
        path: the token file. Its sidecar must be next to it.

    Returns:
        A one-dimensional array of uint16 or uint32.

    Raises:
        FormatError: the sidecar is missing or damaged, or does not match the size of the file.
        OSError: the file does not exist or cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     _ = tokenizer.encode_file(corpus, out)
    ...     tokens = load_tokens(out)
    >>> tokens.dtype, tokens.tolist()
    (dtype('uint16'), [97, 98, 256, 99])
    """
    file = open_token_file(path)
    return _map(file.path, DTYPES[file.dtype], file.tokens)


def load_document_offsets(path: str | Path) -> Offsets:
    """Memory-map the index of a token file, read-only.

    Document `i` is ``tokens[offsets[i]:offsets[i + 1]]``, including its end token.

    Args:
        path: the token file, not the index itself.

    Returns:
        A one-dimensional array of uint64 with one entry more than there are documents.

    Raises:
        FormatError: the file has no index, or as for `load_tokens`.
        OSError: as for `load_tokens`.

    >>> from tempfile import TemporaryDirectory
    >>> from bpeflow import Tokenizer, load_document_offsets, load_tokens
    >>> tokenizer = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    >>> with TemporaryDirectory() as folder:
    ...     corpus, out = Path(folder, "corpus.txt"), Path(folder, "train.bin")
    ...     _ = corpus.write_text("ab<|endoftext|>c", encoding="utf-8")
    ...     _ = tokenizer.encode_file(corpus, out, index=True)
    ...     tokens, offsets = load_tokens(out), load_document_offsets(out)
    >>> offsets.tolist()
    [0, 3, 4]
    >>> tokenizer.decode(tokens[offsets[0] : offsets[1]])
    'ab<|endoftext|>'
    """
    file = open_token_file(path)
    if not file.index:
        raise FormatError(f"{file.path}: has no index of its documents; encode again with --index (index=True)")
    offsets: Offsets = _map(index_path(file.path), OFFSET_DTYPE, file.documents + 1)
    if offsets[0] != 0 or offsets[-1] != file.tokens:
        raise FormatError(
            f"{index_path(file.path)}: goes from {offsets[0]} to {offsets[-1]}, but there are {file.tokens} tokens; "
            "it belongs to another token file"
        )
    return offsets


def open_token_file(path: str | Path) -> TokenFile:
    """Read the sidecar of a token file and check the sizes of the files. Raises as `load_tokens` does."""
    path = Path(path)
    if path.is_dir():
        raise FormatError(f"{path}: is a folder, not a token file")
    size = path.stat().st_size
    file = read_sidecar(path)
    _check_size(path, size, file.tokens, DTYPES[file.dtype])
    if file.index:
        offsets = index_path(path)
        if not offsets.is_file():
            raise FormatError(f"{offsets}: is missing, although {sidecar_path(path)} mentions it; copy it, too")
        _check_size(offsets, offsets.stat().st_size, file.documents + 1, OFFSET_DTYPE)
    return file


def read_sidecar(path: Path) -> TokenFile:
    """Read the sidecar of a token file. Raises `FormatError` if it is missing, damaged, or of another version."""
    sidecar = sidecar_path(path)
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(
            f"{path}: there is no {sidecar.name} beside it, which has the type of its tokens; copy it, too"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{sidecar}: not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FormatError(f"{sidecar}: not the sidecar of a token file: format is not {FORMAT!r}")
    if facts.get("version") != VERSION:
        raise FormatError(
            f"{sidecar}: has version {facts.get('version')!r}, but this bpeflow reads version {VERSION}; update bpeflow"
        )
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


def read_ids(file: TokenFile, stream: BinaryIO, count: int) -> Ids:
    """Read the next `count` ids of a token file that is open as `stream`.

    Raises `FormatError` if there are fewer, because the file was truncated meanwhile.
    """
    dtype = DTYPES[file.dtype]
    ids = np.fromfile(stream, dtype, count)
    if len(ids) < count:
        raise FormatError(f"{file.path}: became shorter while it was read; run again when it is complete")
    return ids.astype(dtype.newbyteorder("="), copy=False)


def _map(path: Path, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
    if length:
        return np.memmap(path, dtype, mode="r", shape=(length,))
    empty = np.empty(0, dtype)  # an empty file cannot be mapped
    empty.flags.writeable = False
    return empty


def _check_size(path: Path, size: int, length: int, dtype: np.dtype[Any]) -> None:
    if size != length * dtype.itemsize:
        state = "cut short" if size < length * dtype.itemsize else "too long"
        raise FormatError(
            f"{path}: {state}: {size:,} bytes, but the sidecar says {length:,} numbers of {dtype.itemsize} bytes; "
            "copy it again, or encode again"
        )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _field(facts: Any, sidecar: Path, key: str, is_valid: Callable[[object], bool], section: str = "") -> Any:
    value = facts.get(key) if isinstance(facts, dict) else None
    if not is_valid(value):
        raise FormatError(f"{sidecar}: {section}{key} is missing or damaged ({value!r}); encode again")
    return value


# ---- writing ----


@contextmanager
def new_token_file(
    path: Path, dtype: DtypeName, facts: Mapping[str, Any], index: bool = False
) -> Iterator[TokenWriter]:
    """Write a token file with its sidecar and, if requested, an index: all files, or none if the block raises.

    Whoever finds the ids finds the other files, too, even if the process is killed at any time:

    1. Temporary files of killed processes are removed before the block.
    2. After the block, the ids of an earlier token file of this name are removed, once the new files are durable.
       Otherwise they could be read with the new sidecar, which may match their size by coincidence.
    3. An earlier index is removed if the new file has none, while the earlier sidecar still shows that the index is
       part of a token file.
    4. The new files get their names. The sidecar is first, because it says whether there is an index. The ids are last.

    Args:
        path: the token file.
        dtype: the dtype of the ids.
        facts: further content of the sidecar, at least ``{"tokenizer": {"sha256": tokenizer_hash(…)}}``.
        index: whether to write an index.

    Yields:
        A writer to append to.

    Raises:
        FormatError: as for `atomic_path`.
        OSError: as for `atomic_path`.
    """
    remove_dead_parts(path, sidecar_path(path), index_path(path))
    inodes: dict[Path, int] = {}  # of all new files, the ids last

    def undo_names(error: type[BaseException] | None, *_: object) -> None:
        """Remove the files that already have their names if the ids do not get theirs (Ctrl-C, full disk)."""
        if error is not None and inodes:
            *others, (ids_name, ids_inode) = inodes.items()
            if not _has_inode(ids_name, ids_inode):  # Ctrl-C can also arrive when everything is done
                for name, inode in others:
                    with suppress(OSError):
                        if _has_inode(name, inode):
                            name.unlink()

    with ExitStack() as stack:  # unwinds in reverse order
        stack.push(undo_names)
        ids_file = stack.enter_context(atomic_path(path))
        index_file = stack.enter_context(atomic_path(index_path(path))) if index else None
        sidecar_file = stack.enter_context(atomic_path(sidecar_path(path)))
        with ExitStack() as streams:
            ids = streams.enter_context(FileIO(os.fspath(ids_file), "w"))
            hold_part(ids)
            offsets = streams.enter_context(FileIO(os.fspath(index_file), "w")) if index_file else None
            writer = TokenWriter(path, dtype, facts, ids, offsets)
            yield writer
        # Bytes of a file name that are not UTF-8 become \udcXX, which JSON reads back as the same surrogates.
        with _name_errors(sidecar_path(path)):
            sidecar_file.write_text(writer.sidecar(), encoding="utf-8", errors="backslashreplace")
        for name, file in ((sidecar_path(path), sidecar_file), (index_path(path), index_file), (path, ids_file)):
            if file is not None:
                inodes[Path(os.path.realpath(name))] = file.stat().st_ino
        if sidecar_path(path).exists():
            with _name_errors(path):
                _remove_earlier_ids(path, [file for file in (ids_file, sidecar_file, index_file) if file is not None])
                if not index and _has_index(path):
                    _remove(index_path(path))


class TokenWriter:
    """Appends to a token file. Made by `new_token_file`.

    Attributes:
        tokens: number of ids written so far.
        documents: number of documents that have ended so far.
        facts: further content of the sidecar. May be changed until the file is complete.
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

    def write(self, ids: Ids) -> None:
        """Append ids. Raises `OSError`, with the file, if writing fails."""
        _write_array(self._ids, ids.astype(DTYPES[self._dtype], copy=False), self._path)
        self.tokens += len(ids)

    def end_documents(self, ends: NDArray[np.int64]) -> None:
        """Add documents.

        Args:
            ends: for each, the position after its last id. Ascending, also from one call to the next.

        Raises:
            OSError: writing fails. The error names the file.
        """
        self._write_offsets(ends)
        self.documents += len(ends)

    def sidecar(self) -> str:
        """Return the sidecar of what has been written so far, as JSON."""
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


def _has_inode(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False


def _has_index(path: Path) -> bool:
    """Return whether an existing token file has an index."""
    try:
        return read_sidecar(path).index
    except (FormatError, OSError):
        return False


def _remove_earlier_ids(path: Path, new_files: Sequence[Path]) -> None:
    """Remove the ids that the new ones replace, durably.

    The new files are made durable first. After that only their renaming is left to do.
    """
    for file in new_files:
        sync_file(file)
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, or the target of a symbolic link, durably."""
    file = Path(os.path.realpath(path))
    file.unlink(missing_ok=True)
    sync_folder(file.parent)


def _write_array(stream: FileIO, array: NDArray[Any], path: Path) -> None:
    remaining = np.ascontiguousarray(array).view(np.uint8).data
    with _name_errors(path):
        while remaining:
            remaining = remaining[stream.write(remaining) :]


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Add the path to an `OSError` of a file that is open by descriptor."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
