"""The index of Megatron-LM's datasets, ``NAME.idx`` next to the ids in ``NAME.bin``.

All numbers are little-endian. The layout is that of ``megatron/core/datasets/indexed_dataset.py``:

=========================  =============================================================================================
9 bytes                    ``MMIDIDX``, followed by two zero bytes
uint64                     the version, 1
uint8                      the type of the ids: 8 for uint16, 4 for int32 (there is no code for uint32)
uint64                     S, the number of sequences
uint64                     D, the number of document indices
int32, S times             the length of each sequence, in ids
int64, S times             the position of each sequence in ``NAME.bin``, in bytes
int64, D times             for each document its first sequence, and at the end S
=========================  =============================================================================================

Here every document is one sequence, so that D is S + 1.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import FormatError

if TYPE_CHECKING:
    from bpeflow.dataset.token_writer import ArrayFile

_HEADER = struct.Struct("<9sQBQQ")
_MAGIC, _VERSION = b"MMIDIDX\0\0", 1
_LENGTHS, _POINTERS = np.dtype("<i4"), np.dtype("<i8")

#: The codes of the types of ids by their sizes in bytes. An id less than 2^31 has the same bytes in uint32 and int32.
_DTYPE_CODES = {2: 8, 4: 4}

#: Upper bound on the length of a sequence.
LONGEST = np.iinfo(_LENGTHS).max

#: Documents whose entries are computed at a time. More: more memory. Fewer: more calls.
_AT_A_TIME = 1 << 20


class MegatronIndex:
    """Writes an index. The lengths of documents are written as they come, and all else at the end, in bounded memory.

    Args:
        file: the index, still empty.
        id_size: size of an id in bytes.
    """

    def __init__(self, file: ArrayFile, id_size: int) -> None:
        self._file, self._id_size = file, id_size
        self._documents = self._end = 0
        file.append(bytes(_HEADER.size))

    def add(self, ends: NDArray[np.int64]) -> None:
        """Add documents, given the position after the last id of each, ascending.

        Raises:
            FormatError: a document is longer than the format allows.
            OSError: writing fails.
        """
        lengths = np.diff(ends, prepend=self._end)
        if lengths.max(initial=0) > LONGEST:
            raise FormatError(
                f"{self._file.path}: a document has {lengths.max():,} tokens, and Megatron-LM's format allows "
                f"{LONGEST:,}; give --shard_tokens (shard_tokens=), which divides it, or use another format"
            )
        self._file.append(lengths.astype(_LENGTHS))
        self._documents += len(ends)
        self._end = int(ends[-1]) if len(ends) else self._end

    def finish(self) -> None:
        """Complete and close the index. Raises `OSError` if writing fails."""
        position = 0
        for first in range(0, self._documents, _AT_A_TIME):
            count = min(_AT_A_TIME, self._documents - first)
            lengths = self._file.read_at(_HEADER.size + first * _LENGTHS.itemsize, _LENGTHS, count)
            ends = position + np.cumsum(lengths, dtype=np.int64)
            self._file.append(((ends - lengths) * self._id_size).astype(_POINTERS))
            position = int(ends[-1])
        for first in range(0, self._documents + 1, _AT_A_TIME):
            self._file.append(np.arange(first, min(first + _AT_A_TIME, self._documents + 1), dtype=_POINTERS))
        code = _DTYPE_CODES[self._id_size]
        self._file.write_at(0, _HEADER.pack(_MAGIC, _VERSION, code, self._documents, self._documents + 1))
        self._file.close()


def read_offsets(path: Path, documents: int) -> NDArray[np.uint64]:
    """Return the position of the first id of each document, and at the end the number of ids.

    Raises:
        FormatError: the file is damaged, or does not have this number of documents.
        OSError: the file cannot be read.
    """
    expected = _HEADER.size + documents * (_LENGTHS.itemsize + 2 * _POINTERS.itemsize) + _POINTERS.itemsize
    with path.open("rb") as stream:
        header = stream.read(_HEADER.size)
        if path.stat().st_size != expected or _HEADER.unpack(header)[3] != documents or header[:9] != _MAGIC:
            raise FormatError(
                f"{path}: not an index of Megatron-LM for the {documents:,} documents of the sidecar; copy it again, "
                "or encode again"
            )
        lengths = np.fromfile(stream, _LENGTHS, documents)
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
