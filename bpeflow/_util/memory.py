"""Recognition of out-of-memory errors, and messages that say what the memory was needed for and what helps."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow.errors import OutOfMemoryError

#: Messages, in lower case, of Python errors that mean no memory for a thread's stack or for a module's code.
_MESSAGES = ("can't start new thread", "failed to map segment", "cannot allocate memory")


@contextmanager
def explain_memory_error(what: str, remedy: str) -> Iterator[None]:
    """Turn out-of-memory errors in the block, or in workers that it waits for, into `OutOfMemoryError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_memory_error(error):
            raise
        raise OutOfMemoryError(f"{what}: {explain(error)}: {remedy}") from error


def check_address_space(size: int) -> None:
    """Raise `OSError` (ENOMEM) unless `size` bytes can be mapped, because some libraries crash when they run out."""
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()


def is_memory_error(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, in any of the forms that this takes in Python."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and any(message in str(error).lower() for message in _MESSAGES)
    )


def explain(error: BaseException) -> str:
    """Return ``"out of memory"``, with the message of `error` if it has one."""
    return f"out of memory ({error})" if str(error) else "out of memory"
