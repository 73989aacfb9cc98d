"""Writing the token files of a set, all of them or none: `new_token_set`.

`ArrayFile` is a file of numbers, `TokenWriter` writes a token file and its index, `PartWriter` token files of bounded
length, and `TokenSetWriter` the files of all splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bpeflow._util.atomic import name_errors
from bpeflow.counting.fingerprint import Fingerprint
from bpeflow.dataset import megatron
from bpeflow.dataset.journal import Journal, open_journal
from bpeflow.dataset.token_file import (
    DTYPES,
    FORMAT,
    NPY_HEADER,
    OFFSET_DTYPE,
    VERSION,
    Ids,
    Split,
    index_path,
    sidecar_path,
)
from bpeflow.dataset.token_set import TokenSet
from bpeflow.errors import ResumeError
from bpeflow.flow.shared import Descriptor, write_all

#: Ids that are moved to another file at a time. More: more memory. Fewer: more calls.
_AT_A_TIME = 1 << 20

#: Bytes that are appended before the system is asked to write them to the disk. More: more is left to wait for when the
#: file is flushed at the end. Fewer: more calls.
_WRITE_BACK = 32 << 20

#: The ends of no documents.
NO_ENDS: NDArray[np.int64] = np.empty(0, np.int64)

#: The size of the numbers in a file, in bytes, and their CRC-32; of a new one.
State = tuple[int, int]
_EMPTY: State = (0, 0)

#: The state of a new token file: documents, and the states of the ids, of those of whole documents, and of the index.
_NEW = (0, _EMPTY, _EMPTY, _EMPTY)


class ArrayFile:
    """A file of numbers, to append to. Errors name the `path` that it will have.

    The numbers follow a head of `head` bytes, which is written when the file is closed. The file is new, or continues
    an interrupted encoding after the numbers of its state. Raises `ResumeError` if these are missing or damaged.

    Attributes:
        file: where it is until it gets that name.
        state: the size of the numbers in bytes, and their CRC-32.
    """

    def __init__(self, journal: Journal, path: Path, head: int, state: State) -> None:
        file = journal.new(path)
        self.file, self.path, self.head = file, path, head
        self.state: State = state
        self._written_back = head + state[0]  # the bytes that the system was asked to write to the disk
        with name_errors(path, file):
            if state[0] and (not file.exists() or _checksum(file, head, state[0]) != state[1]):
                raise ResumeError(
                    f"{file}: is gone, cut short or damaged, so the encoding cannot be resumed: start over with "
                    "overwrite=True and without resume"
                )
            self._stream = Descriptor(os.fspath(file), "r+" if state[0] else "w+")
            self._stream.truncate(self._written_back)
            self._stream.seek(self._written_back)

    def append(self, numbers: NDArray[Any]) -> None:
        """Append numbers. Raises `OSError` if writing fails."""
        data = np.ascontiguousarray(numbers).view(np.uint8).data
        size, checksum = self.state
        with name_errors(self.path):
            write_all(self._stream, data)
        self.state = size + len(data), crc32(data, checksum)
        if self.head + self.state[0] - self._written_back >= _WRITE_BACK:
            self._write_back()

    def _write_back(self) -> None:
        """Let the system begin to write to the disk what it would otherwise keep until the file is flushed.

        Linux does so when it is advised that the pages are not needed. They stay in memory, as it only drops pages that
        are on the disk already.
        """
        if hasattr(os, "posix_fadvise"):
            begin, self._written_back = self._written_back, self.head + self.state[0]
            with suppress(OSError):  # it is only advice
                os.posix_fadvise(self._stream.fileno(), begin, self._written_back - begin, os.POSIX_FADV_DONTNEED)

    def close(self, head: bytes) -> None:
        """Write the head, and close the file. Raises `OSError` if that fails."""
        with name_errors(self.path):
            self._stream.seek(0)
            write_all(self._stream, head)
            self._stream.close()


def _checksum(file: Path, head: int, size: int) -> int:
    """Return the checksum of a file's numbers; of fewer bytes if it is cut short. Raises `OSError`."""
    checksum = 0
    with file.open("rb") as stream:
        stream.seek(head)
        while data := stream.read(min(size, _AT_A_TIME)):
            checksum = crc32(data, checksum)
            size -= len(data)
    return checksum


class TokenWriter:
    """Appends to a token file of a set, and to its index, if there is one.

    Attributes:
        documents: number of documents that have ended so far.
    """

    def __init__(self, path: Path, tokens: TokenSet, journal: Journal, state: Sequence[Any] = _NEW) -> None:
        self.path = path
        self.documents, ids, ended, index = state
        self._ended: State = ended
        self._layout, self._dtype = tokens.layout, DTYPES[tokens.dtype]
        self._ids = ArrayFile(journal, path, NPY_HEADER if tokens.layout == "npy" else 0, ids)
        self._index = None
        if tokens.has_index:
            head = megatron.HEADER_SIZE if tokens.layout == "megatron" else OFFSET_DTYPE.itemsize
            self._index = ArrayFile(journal, index_path(path, tokens.layout), head, index)

    @property
    def state(self) -> list[Any]:
        """What the writer knows of its files, to continue them later."""
        return [self.documents, self._ids.state, self._ended, self._index.state if self._index else _EMPTY]

    @property
    def tokens(self) -> int:
        """Number of ids written so far."""
        return self._ids.state[0] // self._dtype.itemsize

    @property
    def last_end(self) -> int:
        """The position after the last id of the last document that has ended."""
        return self._ended[0] // self._dtype.itemsize

    @property
    def checksum(self) -> int:
        """The CRC-32 of the ids as they are in the file."""
        return self._ids.state[1]

    def write(self, ids: Ids, ends: NDArray[np.int64] = NO_ENDS) -> None:
        """Append ids.

        For each document that ends, `ends` has the position in `ids` after its last id, ascending. 0 ends the document
        that the ids of earlier calls belong to. Raises `OSError`, and `FormatError` if the layout does not allow a
        document as long as this.
        """
        stored = np.ascontiguousarray(ids, self._dtype)
        ended = int(ends[-1]) if len(ends) else 0
        ends = ends + self.tokens
        self._ids.append(stored[:ended])
        if len(ends):
            if self._index is not None:
                entries: NDArray[Any] = ends.astype(OFFSET_DTYPE)
                if self._layout == "megatron":
                    entries = megatron.encode_lengths(ends, self.last_end, self._index.path)
                self._index.append(entries)
            self._ended = self._ids.state
            self.documents += len(ends)
        self._ids.append(stored[ended:])

    def take_unfinished(self) -> Iterator[Ids]:
        """Give up the ids of the document that has not ended, and yield them. `trim` removes them. Raises `OSError`."""
        for first in range(self.last_end, self.tokens, _AT_A_TIME):
            offset = self._ids.head + first * self._dtype.itemsize
            yield np.fromfile(self._ids.file, self._dtype, _AT_A_TIME, offset=offset)
        self._ids.state = self._ended

    def trim(self) -> None:
        """Remove ids that were taken, which earlier checkpoints need, from the finished file."""
        os.truncate(self._ids.file, self._ids.head + self._ids.state[0])

    def finish(self) -> None:
        """Complete and close the files. A document that has not ended ends here. Raises `OSError`."""
        if self.last_end < self.tokens:
            self.write(np.empty(0, self._dtype), np.zeros(1, np.int64))
        self._ids.close(_npy_header(self._dtype, self.tokens) if self._layout == "npy" else b"")
        if self._index is not None:
            self._index.close(bytes(self._index.head))
            if self._layout == "megatron":
                with name_errors(self._index.path, self._index.file):
                    megatron.complete_index(self._index.file, self.documents, self._dtype.itemsize)


def _npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return numpy's header of a one-dimensional array. It has the same size for all lengths."""
    header = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


class PartWriter:
    """Appends to the token files of a split, of at most `shard_tokens` ids each. All but the last are complete."""

    def __init__(self, tokens: TokenSet, split: Split, journal: Journal) -> None:
        self.parts: list[TokenWriter] = []
        self._set, self._split, self._journal = tokens, split, journal
        earlier: tuple[int, list[Any]] = journal.checkpoint["splits"][split] if journal.checkpoint else (0, [_NEW])
        self.documents, states = earlier
        for state in states:
            self._begin_part(state=state)

    @property
    def state(self) -> list[Any]:
        """What the writer knows, to continue later."""
        return [self.documents, [part.state for part in self.parts]]

    def write(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        """Append ids, as `TokenWriter.write` does."""
        self.documents += len(ends)
        limit = self._set.options.shard_tokens
        while limit is not None and len(ids) > (room := limit - self.parts[-1].tokens):
            part = self.parts[-1]
            fitting = int(np.searchsorted(ends, room, "right"))
            cut = int(ends[fitting - 1]) if fitting else 0
            part.write(ids[:cut], ends[:fitting])
            moved: Iterable[Ids] = part.take_unfinished()  # of the next document, which does not fit
            if not part.last_end:  # it is longer than a part
                part.write(ids[cut:room])
                cut, moved = room, ()
            ids, ends = ids[cut:], ends[fitting:] - cut
            self._begin_part(moved)
        self.parts[-1].write(ids, ends)

    def _begin_part(self, ids: Iterable[Ids] = (), state: Sequence[Any] = _NEW) -> None:
        """Begin or continue the next part, with ids moved from the end of the part before; then complete that one."""
        part = TokenWriter(self._set.file(self._split, len(self.parts)), self._set, self._journal, state)
        for some in ids:
            part.write(some)
        if self.parts:
            self.parts[-1].finish()
        self.parts.append(part)


class TokenSetWriter:
    """Appends to the token files of a set, and divides documents at random between its splits. See `new_token_set`.

    The further `facts` of the sidecars may be changed until the files are complete.
    """

    def __init__(self, tokens: TokenSet, facts: Mapping[str, Any], journal: Journal) -> None:
        self.facts = dict(facts)
        self.journal = journal
        self.splits = {split: PartWriter(tokens, split, journal) for split in tokens.splits}
        self._set = tokens
        self._numbers = np.random.PCG64(tokens.options.seed)  # its stream is the same in all versions of numpy
        self._numbers.advance(self.documents)
        self._threshold = np.uint64(int(tokens.options.val_fraction * 2.0**64))
        self._open = self._draw(1)  # whether the document that has not ended belongs to the validation split

    @property
    def tokens(self) -> int:
        """Number of ids written so far."""
        return sum(part.tokens for split in self.splits.values() for part in split.parts)

    @property
    def documents(self) -> int:
        """Number of documents that have ended so far."""
        return sum(split.documents for split in self.splits.values())

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

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Make durable what was written so far, so that the encoding can be resumed from here. Raises `OSError`."""
        splits = {split: writer.state for split, writer in self.splits.items()}
        self.journal.save({**state, "tokens": self.tokens, "splits": splits})

    def _draw(self, count: int) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = self._numbers.random_raw(count) < self._threshold
        return chosen

    def finish(self) -> None:
        """Complete the files, and write their sidecars. Raises `OSError` if writing fails."""
        for split, writer in self.splits.items():
            writer.parts[-1].finish()
            for number, part in enumerate(writer.parts):
                part.trim()
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
        temporary = self.journal.new(path)
        with name_errors(path, temporary):
            # Bytes of a file name that are not UTF-8 become \udcXX, which JSON reads back as the same surrogates.
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def new_token_set(
    tokens: TokenSet, facts: Mapping[str, Any], fingerprint: Fingerprint | None = None
) -> Iterator[TokenSetWriter]:
    """Write the token files of a set: all files, or none if the block raises.

    Whoever finds the ids of the first token file finds all other files of the set, too, even if the process is killed
    at any time. After the block, earlier token files are removed first (see `TokenSet.stale_files`). Then the new files
    get their names: the sidecars first, because they say whether there is an index, and the ids of the first token file
    last. Sidecars have `facts`, too, at least ``{"tokenizer": {"sha256": tokenizer_hash(…)}}``.

    With a fingerprint the writer may make checkpoints, and the files of an interrupted encoding are continued with
    `resume`. Raises as `open_journal` does.
    """
    with open_journal(tokens, fingerprint) as journal:
        writer = TokenSetWriter(tokens, facts, journal)
        yield writer
        writer.finish()
