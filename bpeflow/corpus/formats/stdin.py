"""Standard input, which may keep its readers waiting for as long as it likes."""

from __future__ import annotations

import select
import sys
from io import BufferedReader
from threading import Event

from bpeflow.errors import CorpusError

#: How often a reader that waits asks whether anybody still wants what it waits for, in seconds.
_ASK_SECONDS = 0.2


class CancelledError(Exception):
    """Nobody takes any more what is being read: those who did have failed, and tell why."""


class WatchedInput:
    """Standard input, as its readers see it: they do not wait for what nobody will take."""

    def __init__(self, cancelled: Event) -> None:
        """`cancelled` is set by those who take what is read, when they have failed."""
        self._buffer = standard_input()
        self._cancelled = cancelled
        self._may_be_buffered = True  # somebody may have read from it before
        try:
            self._poll = select.poll()
            self._poll.register(self._buffer.fileno(), select.POLLIN)
        except (AttributeError, OSError):  # not on every platform; no file, but an object that somebody has put there
            self._may_wait = False
        else:
            self._may_wait = True

    def read(self, most: int) -> bytes:
        """Read up to so many bytes, as soon as there are any; none at the end. Raises `CancelledError`."""
        while not self._cancelled.is_set():
            if not self._may_wait or self._may_be_buffered or self._poll.poll(_ASK_SECONDS * 1000):
                block = self._buffer.read1(most)
                self._may_be_buffered = len(block) == most
                return block
        raise CancelledError


def standard_input() -> BufferedReader:
    """Standard input, in bytes. Raises `CorpusError` where there is none."""
    buffer: BufferedReader | None = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        raise CorpusError("standard input (-) is closed: pipe text into it, or name files instead")
    return buffer
