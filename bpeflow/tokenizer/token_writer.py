"""Writing a token file with its sidecar and index: all of them or none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.atomic import atomic_path, hold_part, remove_dead_parts, sync_file, sync_folder
from bpeflow.errors import FormatError
from bpeflow.tokenizer.token_file import (
    DTYPES,
    FORMAT,
    OFFSET_DTYPE,
    VERSION,
    DtypeName,
    Ids,
    index_path,
    read_sidecar,
    sidecar_path,
)  # fmt: skip


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
