"""One measurement: a fresh process from its start to its end, its wall time and its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import psutil

#: Seconds between two looks at a process's memory. Less sees shorter peaks, more disturbs less.
SAMPLING_INTERVAL = 0.05
#: The part of one core that looking may take at most: to list the processes takes 1 ms where 70 run, 10 where 700 do.
SAMPLING_SHARE = 0.02
#: What `ru_maxrss` counts in.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Measurement:
    """What one process took: wall seconds, bytes of memory, and why it failed (None: it did not).

    ``largest_bytes`` is the peak of the largest of its processes: of the first as the system has kept account of it, of
    the others as sampled. ``tree_bytes`` is the peak of the sum over all of them, as sampled, where pages that
    processes share count once for each. Both are of resident memory, pages of mapped files included.
    """

    seconds: float
    largest_bytes: int
    tree_bytes: int
    samples: int
    error: str | None
    stdout: str
    stderr: str


class _Watcher(threading.Thread):
    """Samples the memory of a process and its descendants, and kills them all when their time is over."""

    def __init__(self, process_id: int, timeout: float) -> None:
        super().__init__(name="watcher", daemon=True)
        self._process_id = process_id
        self._deadline = time.monotonic() + timeout
        self._ended = threading.Event()
        self.timed_out = False
        self.largest = self.sum = self.samples = 0

    def run(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            if time.monotonic() > self._deadline:
                self.timed_out = True
                kill_group(self._process_id)
                return
            started = time.monotonic()
            self._sample()
            pause = max(SAMPLING_INTERVAL, (time.monotonic() - started) / SAMPLING_SHARE)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _sample(self) -> None:
        sizes = []
        with suppress(psutil.Error):  # it has just ended
            root = psutil.Process(self._process_id)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):
                    sizes.append(process.memory_info().rss)
        self.largest = max(self.largest, *sizes, 0)
        self.sum = max(self.sum, sum(sizes))
        self.samples += 1


def measure(command: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None) -> Measurement:
    """Run a command to its end and say what it took; after ``timeout`` seconds it is killed and has failed.

    ``environment`` is added to this process's own. What the command leaves running is killed, so that it does not run
    into the next measurement.

    A process inherits its parent's peak of resident memory as its own floor (Linux), so whoever calls this should be
    small: the runner imports little and has about 30 MB.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        watcher = _Watcher(process.pid, timeout)
        watcher.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:  # Ctrl-C, too
            watcher.stop()
            kill_group(process.pid)
        error = f"timed out after {timeout:g} s" if watcher.timed_out else _explain(process.returncode, _text(stderr))
        largest = max(usage.ru_maxrss * _MAXRSS_UNIT, watcher.largest)
        return Measurement(
            seconds=seconds,
            largest_bytes=largest,
            tree_bytes=max(watcher.sum, largest),
            samples=watcher.samples,
            error=error,
            stdout=_text(stdout),
            stderr=_text(stderr),
        )


def kill_group(leader: int) -> None:
    """Kill all processes of a group, if there still are any."""
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        os.killpg(leader, signal.SIGKILL)


def _explain(return_code: int, stderr: str) -> str | None:
    if return_code == 0:
        return None
    ending = f"exit status {return_code}" if return_code > 0 else f"killed by {signal.Signals(-return_code).name}"
    lines = stderr.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), ending)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
