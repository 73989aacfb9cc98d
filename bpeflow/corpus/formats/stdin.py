"""Standard input, which may make its readers wait indefinitely."""

from __future__ import annotations

import select
import sys
from io import BufferedReader
from threading import Event

from bpeflow.errors import CorpusError

#: Seconds after which a waiting read checks whether it was cancelled. Shorter: it ends sooner; longer: fewer wake-ups.
_POLL_SECONDS = 0.2


class CancelledError(Exception):
    """Reading was cancelled because the consumers of what is read have failed. Their own exceptions say why."""


class WatchedInput:
    """Standard input whose reads can be cancelled while they wait."""

    def __init__(self, cancelled: Event) -> None:
        """Open standard input; its consumers set `cancelled` when they have failed."""
        self._buffer = standard_input()
        self._cancelled = cancelled
        self._may_be_buffered = True  # others may have read from the same buffer before
        try:
            self._poll = select.poll()
            self._poll.register(self._buffer.fileno(), select.POLLIN)
        except (AttributeError, OSError):  # no poll on this platform, or `sys.stdin` was replaced by something else
            self._can_poll = False
        else:
            self._can_poll = True

    def read(self, limit: int) -> bytes:
        """Return up to `limit` bytes as soon as there are any; none at the end. Raises `CancelledError`."""
        while not self._cancelled.is_set():
            if not self._can_poll or self._may_be_buffered or self._poll.poll(_POLL_SECONDS * 1000):
                block = self._buffer.read1(limit)
                self._may_be_buffered = len(block) == limit
                return block
        raise CancelledError


def standard_input() -> BufferedReader:
    """Return standard input as bytes. Raises `CorpusError` if it is closed."""
    buffer: BufferedReader | None = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        raise CorpusError("standard input (-) is closed: pipe text into it, or name files instead")
    return buffer
