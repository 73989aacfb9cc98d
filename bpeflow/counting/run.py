"""`CountRun`: the counts of one partition, as they travel from one process to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.interchange import MAX_COUNT
from bpeflow.counting.scratch import Spilled, cannot_read, cannot_write, damaged
from bpeflow.errors import CountOverflowError, FormatError, ScratchError

#: What stands before the bytes of a pre-token: their number and the count, as bpeflow.h states it.
RECORD = Struct("=Iq")


@dataclass(frozen=True)
class CountRun:
    """Distinct pre-tokens of one partition with their counts, in order, one record after another.

    The records are in memory, cheap to pickle whatever their number; or in a file, of which only the name travels.

    Attributes:
        partition: which merger owns it.
        tokens: how many records there are.
        size: how many bytes they have.
        data: the records; None if they are in a file.
        path: the file, or None.
        statistics: of the documents that were counted, in one partition's run only, so that they add up.
        spilled: what was written to files on the way to this run, its own included.
        durable: whether the file is there to stay, as that of a segment is, when the run has been merged with others.
    """

    partition: int
    tokens: int
    size: int
    data: bytes | bytearray | None = None
    path: Path | None = None
    statistics: DocumentStatistics = field(default=DocumentStatistics())
    spilled: Spilled = field(default=Spilled())
    durable: bool = False

    def __len__(self) -> int:
        return self.tokens

    @property
    def token_bytes(self) -> int:
        """Bytes of the pre-tokens."""
        return self.size - self.tokens * RECORD.size

    @classmethod
    def in_memory(cls, partition: int, tokens: int, data: bytes | bytearray) -> CountRun:
        """A run whose records are at hand."""
        return cls(partition, tokens, len(data), data)

    @classmethod
    def in_file(cls, partition: int, tokens: int, size: int, path: Path) -> CountRun:
        """A run whose records have been written to a file."""
        return cls(partition, tokens, size, path=path, spilled=Spilled(1, size))

    @classmethod
    def pack(cls, partition: int, items: Iterable[tuple[bytes, int]], path: Path | None = None) -> CountRun:
        """Pack ``(pre-token, count)`` pairs, which are in order; to a new file if there is a `path`.

        Raises `CountOverflowError` for a count that does not fit 64 bits and `ScratchError` for a file that cannot be
        written.
        """
        try:
            with ExitStack() as stack:
                file = BytesIO() if path is None else stack.enter_context(path.open("xb"))
                tokens = _write(file, items)
                size = file.tell()
        except OSError as error:
            assert path is not None, "memory is no file"  # noqa: S101 -- for the type checker
            raise cannot_write(path, error) from error
        if path is not None:
            return cls.in_file(partition, tokens, size, path)
        assert isinstance(file, BytesIO)  # noqa: S101 -- for the type checker
        return cls.in_memory(partition, tokens, file.getvalue())

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield ``(pre-token, count)`` in order. Raises `ScratchError` for a file that has been damaged."""
        try:
            with BytesIO(self.data or b"") if self.path is None else self.path.open("rb") as file:
                yield from _read(file, self.tokens, self.size)
        except OSError as error:
            raise cannot_read(self.path or Path(), error) from error
        except EOFError:
            raise self.damaged() from None

    def damaged(self) -> ScratchError | FormatError:
        """The error for records that are no run: of what memory holds we alone are to blame."""
        return damaged(self.path) if self.path is not None else FormatError("no run of counts (please report this)")

    def remove(self) -> None:
        """Remove the file, if the run is in one that is still there and is not to stay."""
        if self.path is not None and not self.durable:
            self.path.unlink(missing_ok=True)


def _write(file: BinaryIO, items: Iterable[tuple[bytes, int]]) -> int:
    tokens = 0
    for token, count in items:
        if count > MAX_COUNT:
            raise CountOverflowError(f"the count of pre-token {token!r} is {count}, which does not fit 64 bits")
        file.write(RECORD.pack(len(token), count) + token)
        tokens += 1
    return tokens


def _read(file: BinaryIO, tokens: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records, which must be all that there is. Raises `EOFError` if they are not."""
    for _ in range(tokens):
        header = file.read(RECORD.size)
        if len(header) != RECORD.size:
            raise EOFError
        length, count = RECORD.unpack(header)
        size -= RECORD.size + length
        token = file.read(length) if size >= 0 else b""
        if len(token) != length or length == 0 or count < 1:
            raise EOFError
        yield token, count
    if size != 0 or file.read(1):
        raise EOFError
