"""Workaround for CPython's gh-140746: `Thread.start` waits forever for a thread that has no memory to start running."""

from __future__ import annotations

import threading
from typing import Any

#: Seconds to wait for a started thread to report that it runs. A shorter wait could take a thread for dead on a very
#: slow machine; a longer one delays the error when memory has run out.
_TIMEOUT = 10.0


class _StartedEvent(threading.Event):
    """The event that a new thread sets once it runs. Only `Thread.start` waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(_TIMEOUT if timeout is None else timeout):
            raise RuntimeError("can't start new thread: not enough memory")
        return True


def bound_thread_starts() -> None:
    """Make `Thread.start` in this process raise `RuntimeError` where it would wait forever. Idempotent."""
    if getattr(threading.Thread.start, "__module__", None) == __name__:
        return
    original_start = threading.Thread.start

    def start(thread: Any) -> None:
        if not thread._started.is_set():
            thread._started = _StartedEvent()
        original_start(thread)

    threading.Thread.start = start  # type: ignore[assignment, method-assign]
