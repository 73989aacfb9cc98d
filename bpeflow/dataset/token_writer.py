"""`TokenWriter`: writes one token file, in any layout. An `ArrayFile` is a file of numbers that is being written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.dataset.megatron import MegatronIndex
from bpeflow.dataset.token_file import DTYPES, FORMAT, NPY_HEADER, OFFSET_DTYPE, VERSION, DtypeName, Ids, Layout

#: Ids that are moved to another file at a time. More: more memory. Fewer: more calls.
_AT_A_TIME = 1 << 20

#: Bytes that are appended before the system is asked to write them to the disk. More: more is left to wait for when the
#: file is flushed at the end. Fewer: more calls.
_WRITE_BACK = 32 << 20

#: The ends of no documents.
NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)


class ArrayFile:
    """A new file of numbers, to append to and to read back. Errors name the path that it will have.

    Args:
        file: the file to create.
        path: the path that it will have.

    Attributes:
        path: the path that it will have.
        size: its size in bytes so far.
    """

    def __init__(self, file: Path, path: Path) -> None:
        self.path = path
        self.size = 0
        self._written_back = 0  # bytes at the beginning that the system was asked to write to the disk
        self._stream = FileIO(os.fspath(file), "w+")

    def append(self, data: bytes | NDArray[Any]) -> None:
        """Append numbers. Raises `OSError` if writing fails."""
        self.size += self.write_at(self.size, data)
        if self.size - self._written_back >= _WRITE_BACK:
            self._write_back()

    def write_at(self, position: int, data: bytes | NDArray[Any]) -> int:
        """Write numbers at a position in bytes, and return the size of them. Raises `OSError` if writing fails."""
        remaining = memoryview(data) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8).data
        size = len(remaining)
        with name_errors(self.path):
            self._stream.seek(position)
            while remaining:
                remaining = remaining[self._stream.write(remaining) :]
        return size

    def read_at(self, position: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Read numbers back, from a position in bytes. Raises `OSError` if reading fails."""
        with name_errors(self.path):
            self._stream.seek(position)
            return np.fromfile(self._stream, dtype, count)

    def truncate(self, size: int) -> None:
        """Remove everything after a position in bytes. Raises `OSError` if that fails."""
        with name_errors(self.path):
            self._stream.truncate(size)
        self.size = size
        self._written_back = min(self._written_back, size)

    def _write_back(self) -> None:
        """Let the system begin to write to the disk what it would otherwise keep until the file is flushed.

        Linux does so when it is advised that the pages are not needed. They stay in memory, as it only drops pages that
        are on the disk already.
        """
        if hasattr(os, "posix_fadvise"):
            begin, self._written_back = self._written_back, self.size
            with suppress(OSError):  # it is only advice
                os.posix_fadvise(self._stream.fileno(), begin, self.size - begin, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file. Raises `OSError` if that fails."""
        with name_errors(self.path):
            self._stream.close()


@contextmanager
def name_errors(path: Path) -> Iterator[None]:
    """Add the path to an `OSError` of a file that is open by descriptor."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class OffsetIndex:
    """Writes an index: the position of the first id of each document and, at the end, the number of ids."""

    def __init__(self, file: ArrayFile) -> None:
        self._file = file
        self.add(np.zeros(1, np.int64))

    def add(self, ends: NDArray[np.int64]) -> None:
        """Add documents, given the position after the last id of each, ascending. Raises `OSError`."""
        self._file.append(ends.astype(OFFSET_DTYPE))

    def finish(self) -> None:
        """Close the index. Raises `OSError`."""
        self._file.close()


class TokenWriter:
    """Appends to a token file.

    Args:
        ids: the file for the ids, still empty.
        index: the file for the index, still empty; None if there is none.
        layout: the layout of both.
        dtype: the dtype of the ids.

    Attributes:
        path: the path that the file will have.
        tokens: number of ids written so far.
        documents: number of documents that have ended so far.
        last_end: the position after the last id of the last of these documents.
    """

    def __init__(self, ids: ArrayFile, index: ArrayFile | None, layout: Layout, dtype: DtypeName) -> None:
        self.path: Path = ids.path
        self.tokens = self.documents = self.last_end = 0
        self._ids, self._layout, self._dtype = ids, layout, dtype
        self._index: OffsetIndex | MegatronIndex | None = None
        if layout == "megatron" and index is not None:
            self._index = MegatronIndex(index, DTYPES[dtype].itemsize)
        elif index is not None:
            self._index = OffsetIndex(index)
        self._start = NPY_HEADER if layout == "npy" else 0
        ids.append(bytes(self._start))

    def write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Append ids.

        Args:
            ids: the ids.
            ends: for each document that ends, the position in `ids` after its last id, ascending. 0 ends the document
                that the ids of earlier calls belong to.

        Raises:
            OSError: writing fails. The error names the file.
        """
        self._ids.append(ids.astype(DTYPES[self._dtype], copy=False))
        if len(ends):
            ends = ends + self.tokens
            self.last_end = int(ends[-1])
            self.documents += len(ends)
            if self._index is not None:
                self._index.add(ends)
        self.tokens += len(ids)

    def take_unfinished(self) -> Iterator[Ids]:
        """Remove the ids of the document that has not ended, and yield them. Raises `OSError`."""
        dtype = DTYPES[self._dtype]
        for first in range(self.last_end, self.tokens, _AT_A_TIME):
            yield self._ids.read_at(self._start + first * dtype.itemsize, dtype, min(_AT_A_TIME, self.tokens - first))
        self._ids.truncate(self._start + self.last_end * dtype.itemsize)
        self.tokens = self.last_end

    def finish(self) -> None:
        """Complete and close the files. A document that has not ended ends here. Raises `OSError`."""
        if self.last_end < self.tokens:
            self.write(np.empty(0, DTYPES[self._dtype]), np.zeros(1, np.int64))
        if self._start:
            self._ids.write_at(0, _npy_header(DTYPES[self._dtype], self.tokens))
        self._ids.close()
        if self._index is not None:
            self._index.finish()

    def sidecar(self, facts: Mapping[str, Any]) -> str:
        """Return the sidecar of what has been written so far, as JSON, with further content."""
        return sidecar_text(self._layout, self._dtype, self.tokens, self.documents, self._index is not None, facts)


def sidecar_text(
    layout: Layout, dtype: DtypeName, tokens: int, documents: int, index: bool, facts: Mapping[str, Any]
) -> str:
    """Return the sidecar of a token file, as JSON, with further content."""
    known = {
        "format": FORMAT,
        "version": VERSION,
        **({} if layout == "bin" else {"layout": layout}),
        "dtype": dtype,
        "byte_order": "little",
        "tokens": tokens,
        "documents": documents,
        "index": index,
    }
    return json.dumps({**known, **facts}, indent=2, ensure_ascii=False) + "\n"


def _npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return numpy's header of a one-dimensional array, which has the same size for all lengths."""
    header = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()
