"""The k-way sum in native code (source: ``ext/count/kway.hpp``): tens of millions of records a second."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char, c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bpeflow._util import native
from bpeflow.counting.shards import (
    EVERYTHING,
    RECORD,
    KeyRange,
    Mark,
    Order,
    Shard,
    cannot_read,
    cannot_write,
    damaged,
    explain_write_error,
)
from bpeflow.errors import FormatError

if TYPE_CHECKING:
    from bpeflow.counting.counts import PretokenCounts
    from bpeflow.counting.thinning import Arrays

#: Records read per native call, which takes about 50 ms. Python handles Ctrl-C between two calls: with more records it
#: is handled later, with fewer the overhead of the calls adds up.
_STEP = 1_000_000

#: Records in a block of `KWaySum.blocks`, at most.
BLOCK = 1 << 16

#: The values of `enum bpeflow_shard_order` in bpeflow.h.
_ORDERS: dict[Order, int] = {"bytes": 0, "count": 1}

#: The index that `bpeflow_kway_failed` returns for the output file.
_OUTPUT_FILE = 2**64 - 1


class NativeKWaySum:
    """The sum in native memory. Its handle is freed at the end of the `with` block or together with the object."""

    def __init__(
        self, shards: Sequence[Shard], order: Order, buffer_size: int, key_range: KeyRange = EVERYTHING
    ) -> None:
        """Borrow the memory of the shards. Raises `NativeUnavailableError` without the native library."""
        self._library = native.load_library("count")
        self._shards = [shard for shard in shards if len(shard)]
        self._partition = shards[0].partition if shards else 0
        self._gathered = c_uint64(), c_uint64()
        natives = (native.Shard * len(self._shards))(*map(_as_native, self._shards))
        limits = None if key_range == EVERYTHING else byref(_as_native_range(key_range))
        arguments = (natives, len(natives), _ORDERS[order], buffer_size, limits)
        self._handle = native.Handle(self._library, "kway", *arguments)

    def __enter__(self) -> NativeKWaySum:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.free()

    @property
    def ended(self) -> bool:
        ended = c_uint32()
        with self._file_errors():
            self._library.bpeflow_kway_ended(self._handle, byref(ended))
        return bool(ended.value)

    def write(self, path: Path, mark_every: int = 0) -> Shard:
        tokens, size, marks = c_uint64(), c_uint64(), c_uint64()
        with self._file_errors(path):
            self._library.bpeflow_kway_write(
                self._handle, os.fsencode(path), mark_every, byref(tokens), byref(size), byref(marks)
            )
        shard = Shard.in_file(self._partition, tokens.value, size.value, path)
        return replace(shard, marks=self._marks(path, marks.value)) if marks.value else shard

    def _marks(self, path: Path, count: int) -> tuple[Mark, ...]:
        """Return the marks of the shard just written, whose keys are read from its file."""
        marks = (native.Mark * count)()
        self._library.bpeflow_kway_marks(self._handle, marks)
        try:
            with path.open("rb") as file:
                return tuple(Mark(_read_key(file, mark.offset), mark.offset, mark.token) for mark in marks)
        except OSError as error:
            raise cannot_read(path, error) from error

    def gather(self, memory: int) -> int:
        tokens, size = self._gathered
        with self._file_errors():
            self._library.bpeflow_kway_gather(self._handle, memory, byref(tokens), byref(size))
        return size.value

    def gathered(self, path: Path | None = None) -> Shard:
        tokens, size = (number.value for number in self._gathered)
        if not tokens:
            return Shard.in_memory(self._partition, 0, b"")
        if path is None:
            data = bytearray(size)
            self._library.bpeflow_kway_save(self._handle, address(data), None)
            return Shard.in_memory(self._partition, tokens, data)
        with explain_write_error(path):
            self._library.bpeflow_kway_save(self._handle, None, os.fsencode(path))
        return Shard.in_file(self._partition, tokens, size, path)

    def blocks(self) -> Iterator[Arrays]:
        import numpy as np

        from bpeflow.counting.thinning import Arrays

        data = np.empty(16 * BLOCK, dtype=np.uint8)
        offsets, counts = np.zeros(BLOCK + 1, dtype=np.int64), np.empty(BLOCK, dtype=np.int64)
        tokens, size = c_uint64(), c_uint64()
        while not self.ended:
            columns = data.ctypes.data, offsets.ctypes.data + offsets.itemsize, counts.ctypes.data
            with self._file_errors():
                self._library.bpeflow_kway_read(self._handle, BLOCK, len(data), 0, *columns, byref(tokens), byref(size))
            if tokens.value:
                yield Arrays(data[: size.value], offsets[: tokens.value + 1], counts[: tokens.value])
            else:  # the next pre-token is longer
                data = np.empty(2 * len(data), dtype=np.uint8)

    def counts(self) -> PretokenCounts:
        import numpy as np  # late, as workers do not need it and start in half the time without

        from bpeflow.counting.counts import PretokenCounts

        for shard in self._shards:
            if shard.token_bytes < len(shard):  # impossible, and `tokens` may ask for more than all memory
                raise shard.damaged()
        wanted = sum(len(shard) for shard in self._shards)
        data = np.empty(sum(shard.token_bytes for shard in self._shards), dtype=np.uint8)
        offsets = np.zeros(wanted + 1, dtype=np.int64)
        counts = np.empty(wanted, dtype=np.int64)
        done, end = 0, 0
        tokens, size = c_uint64(), c_uint64()
        with self._file_errors():
            while done < wanted:
                self._library.bpeflow_kway_read(
                    self._handle,
                    min(_STEP, wanted - done),
                    len(data) - end,
                    end,
                    data.ctypes.data + end,
                    offsets.ctypes.data + (done + 1) * offsets.itemsize,
                    counts.ctypes.data + done * counts.itemsize,
                    byref(tokens),
                    byref(size),
                )
                if not tokens.value:
                    raise FormatError("shards with other numbers of records or bytes than they state")
                done, end = done + tokens.value, end + size.value
        return PretokenCounts(data, offsets, counts)

    @contextmanager
    def _file_errors(self, output: Path | None = None) -> Iterator[None]:
        """Turn errors in the block into errors that name the file which caused them."""
        try:
            yield
        except (OSError, FormatError) as error:
            index = self._library.bpeflow_kway_failed(self._handle)
            path = output if index == _OUTPUT_FILE else self._shards[index].path
            if path is None:
                raise
            if isinstance(error, FormatError):
                raise damaged(path) from None
            raise cannot_write(path, error) if index == _OUTPUT_FILE else cannot_read(path, error) from error


def _as_native(shard: Shard) -> native.Shard:
    if shard.data is not None:
        return native.Shard(address(shard.data), None, shard.tokens, shard.size)
    file_size = shard.size if shard.file_size is None else shard.file_size
    return native.Shard(None, os.fsencode(shard.path or ""), shard.tokens, shard.size, shard.offset, file_size)


def _as_native_range(key_range: KeyRange) -> native.Range:
    low, high = key_range
    return native.Range(low, high, len(low or b""), len(high or b""))


def _read_key(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    length, _ = RECORD.unpack(file.read(RECORD.size))
    return file.read(length)


def address(data: bytes | bytearray) -> int:
    """Return the address of the first byte, which is valid while the caller keeps `data` alive."""
    if isinstance(data, bytearray):
        return ctypes.addressof((c_char * len(data)).from_buffer(data))
    return ctypes.cast(c_char_p(data), c_void_p).value or 0
