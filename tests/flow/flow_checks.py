"""Checks after a run: no process and no thread may be left over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

START_METHODS = ["forkserver", "spawn", "fork"]


def leftover_workers() -> list[str]:
    """Return the child processes, except for multiprocessing's two helpers, which serve all runs."""
    left = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            # A forked worker has the command line of the fork server, but a different parent.
            helper = "forkserver" in command or "resource_tracker" in command
            if process.status() != psutil.STATUS_ZOMBIE and not (helper and process.ppid() == psutil.Process().pid):
                left.append(f"{process.pid} {command}")
    return left


def leftover_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("flow", "QueueFeeder"))]


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
