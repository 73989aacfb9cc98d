"""A command as a real process, with limits, watched from outside until all of it has ended."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import psutil

#: A run that takes longer hangs; what is left of it after its end may take so long to go.
HANG, LINGER = 120.0, 5.0
_MARK = "BPEFLOW_SOAK"
_SEMAPHORE = re.compile(rb"/dev/shm/(\S+)")
_LAUNCH = str(Path(__file__).with_name("impatient.py"))


@dataclass
class Ended:
    """How a process ended.

    Attributes:
        status: its exit status, negative for a signal.
        stdout, stderr: what it wrote.
        seconds: from its start to its end.
        hung: whether we had to end it.
        orphans: processes that outlived it.
        shared: what it left in /dev/shm.
        temporary: what it left in its temporary folder.
        signals: those that we sent to the main process.
    """

    status: int
    stdout: str
    stderr: str
    seconds: float
    hung: bool
    orphans: list[str]
    shared: list[str]
    temporary: list[str]
    signals: list[signal.Signals]


_under_way: list[Process] = []


def end_all() -> None:
    """Kill all that have not been waited for: they have sessions of their own, and get no Ctrl-C."""
    for process in _under_way:
        for one in process.marked():
            _end(one, signal.SIGKILL)


class Process:
    """``python -m bpeflow`` with these arguments; with `impatient`, one that saves its merges after every step."""

    def __init__(
        self, arguments: Sequence[str], cwd: Path, stdin: Path | None = None,
        limits: dict[int, int] | None = None, impatient: bool = False,
    ) -> None:  # fmt: skip
        self.signals: list[signal.Signals] = []
        self._mark = token_hex(8)
        self._temporary = Path(tempfile.mkdtemp(prefix="soak-"))  # whose name is short: sockets have theirs in it
        self._shared: set[str] = set()
        self._began = time.monotonic()
        launch = [_LAUNCH] if impatient else ["-m", "bpeflow"]
        environment = {**os.environ, "TMPDIR": str(self._temporary), _MARK: self._mark, "PYTHONFAULTHANDLER": "1"}
        with (stdin or Path(os.devnull)).open("rb") as given:
            self._popen = subprocess.Popen(
                [sys.executable, *launch, *arguments], cwd=cwd, env=environment, stdin=given, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        for kind, limit in (limits or {}).items():
            resource.prlimit(self._popen.pid, kind, (limit, limit))
        self._read: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._readers = [threading.Thread(target=self._drain, args=(name,), daemon=True) for name in self._read]
        for reader in self._readers:
            reader.start()
        _under_way.append(self)

    @property
    def pid(self) -> int:
        """Of the main process."""
        return self._popen.pid

    @property
    def lives(self) -> bool:
        """Whether the main process has not ended."""
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send the main process a signal."""
        if self.lives:
            self.signals.append(number)
            self._popen.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """All processes below the main one, the oldest first."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def watch(self, until: Callable[[], bool], timeout: float) -> None:
        """Wait until something is so, the main process has ended, or the time is over."""
        end = time.monotonic() + timeout
        while self.lives and not until() and time.monotonic() < end:
            self._note_shared()
            time.sleep(0.004)

    def wait(self) -> Ended:
        """Wait for the end of all of it."""
        self.watch(lambda: False, HANG)
        hung = self.lives
        if hung:  # with the stacks of all threads
            for process in [*self.children(), psutil.Process(self.pid)]:
                _end(process, signal.SIGABRT)
            time.sleep(1)
            _end(psutil.Process(self.pid), signal.SIGKILL)
        status = self._popen.wait()
        _under_way.remove(self)
        seconds = time.monotonic() - self._began
        gone_by = time.monotonic() + LINGER
        while (left := self.marked()) and time.monotonic() < gone_by:
            time.sleep(0.02)
        orphans = [_described(process) for process in left]
        for process in left:
            _end(process, signal.SIGKILL)
        for reader in self._readers:
            reader.join(LINGER)
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()
        temporary = sorted(path.name for path in self._temporary.iterdir())
        shutil.rmtree(self._temporary, ignore_errors=True)
        shared = sorted(name for name in self._shared if Path("/dev/shm", name).exists())
        return Ended(
            status=status,
            stdout=self._read["stdout"].decode(errors="replace"),
            stderr=self._read["stderr"].decode(errors="replace"),
            seconds=seconds,
            hung=hung,
            orphans=orphans,
            shared=shared,
            temporary=temporary,
            signals=self.signals,
        )

    def _drain(self, name: str) -> None:
        stream = self._popen.stdout if name == "stdout" else self._popen.stderr
        while stream is not None and (data := os.read(stream.fileno(), 1 << 16)):
            self._read[name] += data

    def _note_shared(self) -> None:
        """Note what it has mapped of shared memory: other processes of this machine have theirs there too."""
        try:
            mapped = Path(f"/proc/{self.pid}/maps").read_bytes()
        except OSError:
            return
        self._shared |= {name.decode() for name in _SEMAPHORE.findall(mapped)} - {"(deleted)"}

    def marked(self) -> list[psutil.Process]:
        """All processes that live and descend from the main one, wherever they belong now."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for pid in psutil.pids():
            with suppress(psutil.NoSuchProcess):
                if mark in _environment(pid) and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it is gone, or somebody else's
        return b""


def _end(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[-200:]}"
    except psutil.NoSuchProcess:
        return str(process.pid)
