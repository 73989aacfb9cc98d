"""Recognition of out-of-memory errors, and messages that say what the memory was needed for and what helps."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow.errors import OutOfMemoryError


@contextmanager
def explain_memory_error(what: str, remedy: str) -> Iterator[None]:
    """Turn out-of-memory errors in the block, or in workers that it waits for, into `OutOfMemoryError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_memory_error(error):
            raise
        raise OutOfMemoryError(f"{what}: {explain(error)}: {remedy}") from error


def is_memory_error(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, in any of the forms that this takes in Python."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
    )


def explain(error: BaseException) -> str:
    """Return ``"out of memory"``, with the message of `error` if it has one."""
    return f"out of memory ({error})" if str(error) else "out of memory"
