"""The kernel objects that processes share: pipes, files without names, and credits made of pipes.

Nothing has a name: the kernel frees it with the last process that has it open.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from weakref import WeakSet


class EndOfStreamError(Exception):
    """All writers of a pipe have exited, and all that they wrote has been read."""


class Descriptor:
    """A file descriptor that this object owns: it is closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self._number = number
        open_here.add(self)

    def fileno(self) -> int:
        """Return the number of the descriptor."""
        return self._number

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


#: The descriptors of this process. A child that other code forks closes them: it would keep the readers of a pipe
#: waiting for an end of file.
open_here: WeakSet[Descriptor] = WeakSet()
os.register_at_fork(after_in_child=lambda: list(map(Descriptor.close, list(open_here))))


def pipe() -> tuple[Descriptor, Descriptor]:
    """Return the reading and the writing end of a new pipe."""
    reader, writer = os.pipe()
    return Descriptor(reader), Descriptor(writer)


def anonymous_file() -> Descriptor:
    """Return a new file that has no name, in memory where the system supports it."""
    if hasattr(os, "memfd_create"):
        return Descriptor(os.memfd_create("bpeflow"))
    import tempfile  # slow to import

    with tempfile.TemporaryFile() as file:
        return Descriptor(os.dup(file.fileno()))


class Credits:
    """Credits that processes take and give back: bytes in a pipe. One credit is a lock, used as a context manager."""

    def __init__(self, count: int) -> None:
        self._reader, self._writer = pipe()
        self.give(min(count, select.PIPE_BUF))  # more might not fit into the pipe of a user who has many

    def take(self) -> None:
        """Take a credit, or wait until there is one."""
        os.read(self._reader.fileno(), 1)

    def give(self, count: int = 1) -> None:
        """Give credits back. Never blocks: what was taken has room."""
        os.write(self._writer.fileno(), bytes(count))

    __enter__ = take

    def __exit__(self, *exception: object) -> None:
        self.give()


def write_all(writer: Descriptor, data: bytes | bytearray | memoryview) -> None:
    """Write all of a buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(writer.fileno(), rest) :]


def read_exactly(reader: Descriptor, size: int, wait: Callable[[], None] | None = None) -> bytearray:
    """Read bytes from a pipe. `wait` is called before each read, if given. Raises `EndOfStreamError`."""
    buffer = bytearray(size)
    rest = memoryview(buffer)
    while rest:
        if wait:
            wait()
        count = os.readv(reader.fileno(), [rest])
        if not count:
            raise EndOfStreamError
        rest = rest[count:]
    return buffer
