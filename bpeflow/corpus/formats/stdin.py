"""Standard input, which may make its readers wait indefinitely."""

from __future__ import annotations

import sys
from io import BufferedReader

from bpeflow.errors import CorpusError
from bpeflow.flow import wait_readable


class StandardInput:
    """Standard input, for the source of a pipeline: a read that waits ends if the pipeline fails."""

    def __init__(self) -> None:
        self._buffer = standard_input()
        self._may_be_buffered = True  # others may have read from the same buffer before
        try:
            self._descriptor: int | None = self._buffer.fileno()
        except (AttributeError, OSError):  # `sys.stdin` was replaced by something else
            self._descriptor = None

    def read(self, limit: int) -> bytes:
        """Return up to `limit` bytes as soon as there are any; none at the end."""
        if self._descriptor is not None and not self._may_be_buffered:
            wait_readable(self._descriptor)
        block = self._buffer.read1(limit)
        self._may_be_buffered = len(block) == limit
        return block


def standard_input() -> BufferedReader:
    """Return standard input as bytes. Raises `CorpusError` if it is closed."""
    buffer: BufferedReader | None = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        raise CorpusError("standard input (-) is closed: pipe text into it, or name files instead")
    return buffer
