"""Measure the wall time and the memory of one fresh process, from start to end."""

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

#: Seconds between two memory samples. A shorter interval catches shorter peaks, a longer one disturbs less.
SAMPLING_INTERVAL = 0.05
#: The largest share of one core that sampling may take. More catches shorter peaks, less disturbs less: listing the
#: processes takes 1 ms if 70 are running and 10 ms if 700 are.
SAMPLING_SHARE = 0.02
#: The unit of `ru_maxrss` in bytes.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Measurement:
    """The time and memory that one process took, with its descendants.

    Memory is resident memory and includes the pages of mapped files.

    Attributes:
        seconds: wall time.
        largest_bytes: peak of the largest process, from the system's accounting for the first process and from samples
            for its descendants.
        tree_bytes: peak of the sum over all processes, from samples. Pages that processes share count once for each.
        samples: the number of memory samples.
        error: why the process failed, or None if it did not.
        stdout: its standard output.
        stderr: its standard error.
    """

    seconds: float
    largest_bytes: int
    tree_bytes: int
    samples: int
    error: str | None
    stdout: str
    stderr: str


class _Watcher(threading.Thread):
    """Samples the memory of a process and its descendants, and kills all of them after a timeout."""

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
        with suppress(psutil.Error):  # the process has just ended
            root = psutil.Process(self._process_id)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):
                    sizes.append(process.memory_info().rss)
        self.largest = max(self.largest, *sizes, 0)
        self.sum = max(self.sum, sum(sizes))
        self.samples += 1


def measure(command: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None) -> Measurement:
    """Run a command to its end and measure it. After `timeout` seconds it is killed and counts as failed.

    Processes that the command leaves running are killed, so that they do not disturb the next measurement. Python keeps
    what it compiles, whatever the environment says: otherwise a package that is not installed as a copy, unlike its
    peers, would be compiled in every run.

    On Linux a process starts with its parent's resident memory as the lower bound of its own peak, so the calling
    process should be small. `tools/bench.py` imports little and takes about 30 MB.

    Args:
        command: the program and its arguments.
        timeout: in seconds.
        environment: variables to add to the environment of this process.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
            start_new_session=True,
        )
        watcher = _Watcher(process.pid, timeout)
        watcher.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:  # also on Ctrl-C
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
    """Kill the remaining processes of a group, if any."""
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
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
