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
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpeflow.errors import FormatError

_HEADER = struct.Struct("<9sQBQQ")
_MAGIC, _VERSION = b"MMIDIDX\0\0", 1

#: The size of the header; the lengths of documents follow it.
HEADER_SIZE = _HEADER.size

#: The dtypes of lengths, and of positions and document indices.
LENGTHS, _POINTERS = np.dtype("<i4"), np.dtype("<i8")

#: The codes of the types of ids by their sizes in bytes. An id less than 2^31 has the same bytes in uint32 and int32.
_DTYPE_CODES = {2: 8, 4: 4}

#: Upper bound on the length of a sequence.
LONGEST = np.iinfo(LENGTHS).max

#: Documents whose entries are computed at a time. More: more memory. Fewer: more calls.
_AT_A_TIME = 1 << 20


def encode_lengths(ends: NDArray[np.int64], begin: int, path: Path) -> NDArray[np.int32]:
    """Return the lengths of documents for the index, given where the first begins and each ends.

    Raises `FormatError`, with the path of the index, if a document is longer than the format allows.
    """
    lengths = np.diff(ends, prepend=begin)
    if lengths.max(initial=0) > LONGEST:
        raise FormatError(
            f"{path}: a document has {lengths.max():,} tokens, and Megatron-LM's format allows {LONGEST:,}; give "
            "shard_tokens, which divides it, or use another format"
        )
    return lengths.astype(LENGTHS)


def complete_index(path: Path, documents: int, id_size: int) -> None:
    """Write the rest of an index that has the lengths of the documents, a bounded amount at a time.

    Args:
        path: the index: the size of a header, and the lengths.
        documents: the number of documents.
        id_size: the size of an id, in bytes.
    """
    cuts, position = [*range(0, documents, _AT_A_TIME), documents], 0
    with path.open("rb") as lengths, path.open("r+b") as index:
        index.write(_HEADER.pack(_MAGIC, _VERSION, _DTYPE_CODES[id_size], documents, documents + 1))
        lengths.seek(HEADER_SIZE)
        index.seek(HEADER_SIZE + documents * LENGTHS.itemsize)
        for first, last in pairwise(cuts):
            sizes = np.fromfile(lengths, LENGTHS, last - first).astype(_POINTERS) * id_size
            ends = position + np.cumsum(sizes)
            index.write((ends - sizes).data)
            position = int(ends[-1])
        for first, last in pairwise([*cuts, documents + 1]):
            index.write(np.arange(first, last, dtype=_POINTERS).data)


def read_offsets(path: Path, documents: int) -> NDArray[np.uint64]:
    """Return the position of the first id of each document, and at the end the number of ids.

    Raises `OSError`, and `FormatError` if the file is damaged or does not have this number of documents.
    """
    expected = HEADER_SIZE + documents * (LENGTHS.itemsize + 2 * _POINTERS.itemsize) + _POINTERS.itemsize
    with path.open("rb") as stream:
        start = stream.read(HEADER_SIZE)
        if path.stat().st_size != expected or _HEADER.unpack(start)[3] != documents or start[:9] != _MAGIC:
            raise FormatError(
                f"{path}: not an index of Megatron-LM for the {documents:,} documents of the sidecar; copy it again, "
                "or encode again"
            )
        lengths = np.fromfile(stream, LENGTHS, documents)
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])
