"""A way around CPython's gh-140746: ``Thread.start`` waits for ever for a thread that had no memory to come to life."""

from __future__ import annotations

import threading
from typing import Any

#: Seconds after which a thread that was started, and has not said so, is taken for dead: no machine is as slow as that.
_PATIENCE = 10.0


class _Started(threading.Event):
    """By which a thread says that it lives. Only ``Thread.start`` waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(_PATIENCE if timeout is None else timeout):
            raise RuntimeError("can't start new thread: it had no memory for its first steps")
        return True


def bound_thread_starts() -> None:
    """Let ``Thread.start`` raise `RuntimeError` in this process where it would wait for ever."""
    if getattr(threading.Thread.start, "__module__", None) == __name__:
        return
    begin = threading.Thread.start

    def start(thread: Any) -> None:
        if not thread._started.is_set():
            thread._started = _Started()
        begin(thread)

    threading.Thread.start = start  # type: ignore[assignment, method-assign]
