"""Lack of memory, as an error that says what it was needed for and what helps."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow.errors import OutOfMemoryError

#: What Python says where the system gives it no stack for a thread, or no room for the code of a module.
_SAID = ("can't start new thread", "failed to map segment", "cannot allocate memory")


@contextmanager
def explain_memory_error(what: str, remedy: str) -> Iterator[None]:
    """Turn lack of memory in the block, or in workers that it waits for, into `OutOfMemoryError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_memory_error(error):
            raise
        raise OutOfMemoryError(f"{what}: {explain(error)}: {remedy}") from error


def check_address_space(size: int) -> None:
    """Raise `OSError` (ENOMEM) unless as many bytes could be had: there are libraries that crash for want of them."""
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()


def is_memory_error(error: BaseException) -> bool:
    """Whether an exception comes from it: it has many forms."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and any(said in str(error).lower() for said in _SAID)
    )


def explain(error: BaseException) -> str:
    """Say it in a few words."""
    return f"out of memory ({error})" if str(error) else "out of memory"
