"""Kernel objects without names: pipes, credits made of pipes, and files without a directory entry.

The kernel frees them with the last process that has them open. So nothing is left behind, whichever processes are
killed.
"""

from __future__ import annotations

import os
import select
import tempfile
from collections.abc import Callable, Sequence
from weakref import WeakSet

#: Buffers written in one call: the kernel accepts 1,024.
_MAX_BUFFERS = 512


class EndOfStreamError(Exception):
    """All writers of a pipe have exited, and all that they wrote has been read."""


class Descriptor:
    """A file descriptor that this object owns: it is closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self._number = number
        os.set_inheritable(number, False)  # by processes that a stage function starts
        open_here.add(self)

    def fileno(self) -> int:
        """Return the number of the descriptor."""
        return self._number

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        self.close()


#: The descriptors of this process. A child that other code forks closes them: it would keep the readers of a pipe
#: waiting for an end of file.
open_here: WeakSet[Descriptor] = WeakSet()


def _close_all() -> None:
    for descriptor in list(open_here):
        descriptor.close()


os.register_at_fork(after_in_child=_close_all)


def pipe() -> tuple[Descriptor, Descriptor]:
    """Return the reading and the writing end of a new pipe."""
    reader, writer = os.pipe()
    return Descriptor(reader), Descriptor(writer)


def anonymous_file() -> Descriptor:
    """Return a new file that has no name, in memory where the system supports it."""
    if hasattr(os, "memfd_create"):
        return Descriptor(os.memfd_create("bpeflow"))
    with tempfile.TemporaryFile() as file:
        return Descriptor(os.dup(file.fileno()))


class Credits:
    """Credits that processes take and give back: bytes in a pipe. One credit is a lock, used as a context manager.

    A process that is killed keeps the credits that it has taken. No more than 4,096 (512 on macOS) are created, as more
    might not fit into the pipe of a user who has many pipes.
    """

    def __init__(self, count: int) -> None:
        self._reader, self._writer = pipe()
        self.give(min(count, select.PIPE_BUF))

    def take(self) -> None:
        """Take a credit, or wait until there is one."""
        os.read(self._reader.fileno(), 1)

    def give(self, count: int = 1) -> None:
        """Give credits back. Never blocks: what was taken has room."""
        os.write(self._writer.fileno(), bytes(count))

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *exception: object) -> None:
        self.give()


def write_all(writer: Descriptor, parts: Sequence[bytes | bytearray | memoryview]) -> None:
    """Write all of several buffers, without joining them."""
    views = [memoryview(part) for part in parts if len(part)]
    while views:
        written = os.writev(writer.fileno(), views[:_MAX_BUFFERS])
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


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
