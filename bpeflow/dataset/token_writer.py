"""Writing the token files of a set, all of them or none: `new_token_set`.

`ArrayFile` is a file of numbers, `TokenWriter` writes a token file and its index, `PartWriter` token files of bounded
length, and `TokenSetWriter` those of all splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import NewFiles, hold_part, name_errors, new_files, remove_dead_parts, temporary_path
from bpeflow.dataset import megatron
from bpeflow.dataset.token_file import DTYPES, FORMAT, NPY_HEADER, OFFSET_DTYPE, VERSION, Ids, index_path, sidecar_path
from bpeflow.dataset.token_set import Split, TokenSet

#: Ids that are moved to another file at a time. More: more memory. Fewer: more calls.
_AT_A_TIME = 1 << 20

#: Bytes that are appended before the system is asked to write them to the disk. More: more is left to wait for when the
#: file is flushed at the end. Fewer: more calls.
_WRITE_BACK = 32 << 20

#: The ends of no documents.
NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)


class ArrayFile:
    """A new file of numbers, to append to and to read back. Errors name the `path` that it will have."""

    def __init__(self, file: Path, path: Path) -> None:
        self.path = path
        self.size = 0
        self._written_back = 0  # bytes at the beginning that the system was asked to write to the disk
        with name_errors(path, file):
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


class TokenWriter:
    """Appends to a token file of a set, and to its index, if there is one.

    Attributes:
        tokens: number of ids written so far.
        documents: number of documents that have ended so far.
        last_end: the position after the last id of the last of these documents.
        checksum: the CRC-32 of the ids as they are in the file.
    """

    def __init__(self, ids: ArrayFile, index: ArrayFile | None, tokens: TokenSet) -> None:
        self.path: Path = ids.path
        self.tokens = self.documents = self.last_end = 0
        self.checksum = self._checksum_of_ended = 0
        self._ids, self._index, self._layout = ids, index, tokens.layout
        self._dtype = DTYPES[tokens.dtype]
        self._start = NPY_HEADER if tokens.layout == "npy" else 0
        ids.append(bytes(self._start))
        if index is not None:
            index.append(bytes(megatron.HEADER_SIZE if tokens.layout == "megatron" else OFFSET_DTYPE.itemsize))

    def write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Append ids.

        For each document that ends, `ends` has the position in `ids` after its last id, ascending. 0 ends the document
        that the ids of earlier calls belong to. Raises `OSError`, and `FormatError` if the layout does not allow a
        document as long as this.
        """
        stored = np.ascontiguousarray(ids, self._dtype)
        self._ids.append(stored)
        ended = int(ends[-1]) if len(ends) else 0
        self.checksum = crc32(stored[:ended].data, self.checksum)
        if len(ends):
            self._checksum_of_ended = self.checksum
            ends = ends + self.tokens
            if self._index is not None and self._layout == "megatron":
                self._index.append(megatron.encode_lengths(ends, self.last_end, self._index.path))
            elif self._index is not None:
                self._index.append(ends.astype(OFFSET_DTYPE))
            self.last_end = int(ends[-1])
            self.documents += len(ends)
        self.checksum = crc32(stored[ended:].data, self.checksum)
        self.tokens += len(ids)

    def take_unfinished(self) -> Iterator[Ids]:
        """Remove the ids of the document that has not ended, and yield them. Raises `OSError`."""
        for first in range(self.last_end, self.tokens, _AT_A_TIME):
            position = self._start + first * self._dtype.itemsize
            yield self._ids.read_at(position, self._dtype, min(_AT_A_TIME, self.tokens - first))
        self._ids.truncate(self._start + self.last_end * self._dtype.itemsize)
        self.tokens, self.checksum = self.last_end, self._checksum_of_ended

    def finish(self) -> None:
        """Complete and close the files. A document that has not ended ends here. Raises `OSError`."""
        if self.last_end < self.tokens:
            self.write(np.empty(0, self._dtype), np.zeros(1, np.int64))
        if self._start:
            self._ids.write_at(0, _npy_header(self._dtype, self.tokens))
        self._ids.close()
        if self._index is not None:
            if self._layout == "megatron":
                self._finish_megatron(self._index)
            self._index.close()

    def _finish_megatron(self, index: ArrayFile) -> None:
        def lengths(first: int, count: int) -> NDArray[Any]:
            position = megatron.HEADER_SIZE + first * megatron.LENGTHS.itemsize
            return index.read_at(position, megatron.LENGTHS, count)

        for numbers in megatron.complete_index(lengths, self.documents, self._dtype.itemsize):
            index.append(numbers)
        index.write_at(0, megatron.header(self.documents, self._dtype.itemsize))


def _npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return numpy's header of a one-dimensional array, which has the same size for all lengths."""
    header = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


class PartWriter:
    """Appends to the token files of a split, of at most `shard_tokens` ids each. All but the last are complete."""

    def __init__(self, tokens: TokenSet, split: Split, files: NewFiles, streams: ExitStack) -> None:
        self.parts: list[TokenWriter] = []
        self.tokens = self.documents = 0
        self._set, self._split, self._files, self._streams = tokens, split, files, streams
        self._begin_part()

    def write(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        """Append ids, as `TokenWriter.write` does."""
        self.tokens += len(ids)
        self.documents += len(ends)
        limit = self._set.options.shard_tokens
        while limit is not None and len(ids) > (room := limit - self.parts[-1].tokens):
            part = self.parts[-1]
            fitting = int(np.searchsorted(ends, room, "right"))
            cut = int(ends[fitting - 1]) if fitting else 0
            if not fitting and part.last_end:  # the document that does not fit began in this part, or comes next
                self._begin_part(part.take_unfinished())
                continue
            if part.tokens + cut == 0 or not fitting:  # it is longer than a part
                cut = room
            part.write(ids[:cut], ends[:fitting])
            ids, ends = ids[cut:], ends[fitting:] - cut
            self._begin_part()
        self.parts[-1].write(ids, ends)

    def _begin_part(self, ids: Iterable[Ids] = ()) -> None:
        """Begin the next part, with ids from the end of the one before, which is then complete."""
        path = self._set.file(self._split, len(self.parts))
        index = self._new_array(index_path(path, self._set.layout)) if self._set.has_index else None
        part = TokenWriter(self._new_array(path), index, self._set)
        for some in ids:
            part.write(some)
        if self.parts:
            self.parts[-1].finish()
        self.parts.append(part)

    def _new_array(self, path: Path) -> ArrayFile:
        return self._streams.enter_context(closing(ArrayFile(self._files.new(path), path)))


class TokenSetWriter:
    """Appends to the token files of a set, and divides documents at random between its splits. See `new_token_set`.

    The further `facts` of the sidecars may be changed until the files are complete.
    """

    def __init__(self, tokens: TokenSet, facts: Mapping[str, Any], files: NewFiles, streams: ExitStack) -> None:
        self.facts = dict(facts)
        self.splits = {split: PartWriter(tokens, split, files, streams) for split in tokens.splits}
        self._set, self._files = tokens, files
        self._numbers = np.random.PCG64(tokens.options.seed)  # its stream is the same in all versions of numpy
        self._threshold = np.uint64(int(tokens.options.val_fraction * 2.0**64))
        self._open = self._draw(1)  # whether the document that has not ended belongs to the validation split

    @property
    def tokens(self) -> int:
        """Number of ids written so far."""
        return sum(split.tokens for split in self.splits.values())

    @property
    def documents(self) -> int:
        """Number of documents that have ended so far."""
        return sum(split.documents for split in self.splits.values())

    def paths(self) -> Iterator[Path]:
        """Yield the paths of the token files."""
        for split in self.splits.values():
            yield from (part.path for part in split.parts)

    def write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Append ids, as `TokenWriter.write` does."""
        in_val = np.concatenate([self._open, self._draw(len(ends))])  # of the documents that end, and of the last one
        self._open = in_val[-1:]
        if not in_val.any():
            self.splits["train"].write(ids, ends)
            return
        lengths = np.diff(ends, prepend=0)
        runs = np.split(ids, ends[in_val[1:] != in_val[:-1]])  # of documents of one split, in turns
        for split, chosen in ((self.splits["train"], ~in_val), (self.splits["val"], in_val)):
            own = runs[0 if chosen[0] else 1 :: 2]
            if own:
                split.write(np.concatenate(own), np.cumsum(lengths[chosen[:-1]]))

    def _draw(self, count: int) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = self._numbers.random_raw(count) < self._threshold
        return chosen

    def finish(self) -> None:
        """Complete the files, and write their sidecars. Raises `OSError` if writing fails."""
        for split, writer in self.splits.items():
            writer.parts[-1].finish()
            for number, part in enumerate(writer.parts):
                self._write_sidecar(part, self._set.describe(split, number, len(writer.parts)))

    def _write_sidecar(self, part: TokenWriter, place: Mapping[str, Any]) -> None:
        facts = {
            "format": FORMAT,
            "version": VERSION,
            **({} if self._set.layout == "bin" else {"layout": self._set.layout}),
            "dtype": self._set.dtype,
            "byte_order": "little",
            "tokens": part.tokens,
            "crc32": f"{part.checksum:08x}",
            "documents": part.documents,
            "index": self._set.has_index,
            **place,
            **self.facts,
        }
        if part.path != self._set.first:
            facts.pop("input", None)  # may be long
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        path = sidecar_path(part.path)
        temporary = self._files.new(path)
        with name_errors(path, temporary):
            # Bytes of a file name that are not UTF-8 become \udcXX, which JSON reads back as the same surrogates.
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def new_token_set(tokens: TokenSet, facts: Mapping[str, Any]) -> Iterator[TokenSetWriter]:
    """Write the token files of a set: all files, or none if the block raises.

    Whoever finds the ids of the first token file finds all other files of the set, too, even if the process is killed
    at any time (see `new_files`). After the block, earlier token files are removed first (see `TokenSet.stale_files`).
    Then the new files get their names: the sidecars first, because they say whether there is an index, and the ids of
    the first token file last. Sidecars have `facts`, too, at least ``{"tokenizer": {"sha256": tokenizer_hash(…)}}``.
    Raises as `new_files` does.
    """
    remove_dead_parts(tokens.first, lambda name: tokens.owner(name)[0] is not None)
    for file in tokens.files_of(tokens.first):
        temporary_path(file)  # now, not after the work: some names are longer than the first one
    with ExitStack() as streams, new_files() as files:
        first = files.new(tokens.first)
        with name_errors(tokens.first, first):
            hold_part(streams.enter_context(first.open("wb")))
        writer = TokenSetWriter(tokens, facts, files, streams)
        yield writer
        writer.finish()
        files.stale = [*tokens.stale_files(files.temporary)]
