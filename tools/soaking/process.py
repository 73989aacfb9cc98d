"""Run the command line as a real process with resource limits, and watch it until all of its processes have ended."""

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

#: Seconds after which a run counts as hanging. Less could fail slow runs on a busy machine, more delays the report.
HANG = 120.0
#: Seconds that child processes may take to exit after the main process.
LINGER = 5.0
_MARK = "BPEFLOW_SOAK"
_SEMAPHORE = re.compile(rb"/dev/shm/(\S+)")
_LAUNCH = str(Path(__file__).with_name("impatient.py"))


@dataclass
class Ended:
    """How a process ended.

    Attributes:
        status: its exit status, negative for a signal.
        stdout: its standard output.
        stderr: its standard error.
        seconds: time from its start to its end.
        hung: whether it had to be killed after `HANG` seconds.
        orphans: processes that outlived it.
        shared: files that it left in /dev/shm.
        temporary: files that it left in its temporary folder.
        signals: the signals that were sent to the main process.
        short_of_memory: whether its address space was limited.
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
    short_of_memory: bool = False


_running: list[Process] = []


def end_all() -> None:
    """Kill all running processes. They have their own sessions, so Ctrl-C does not reach them."""
    for process in _running:
        for marked in process.marked():
            _send(marked, signal.SIGKILL)


class Process:
    """``python -m bpeflow`` with these arguments.

    Args:
        arguments: of the command line.
        cwd: the working folder.
        stdin: the file to pass as standard input; none by default.
        limits: resource limits, by their constant in `resource`.
        impatient: whether there are checkpoints all the time.
    """

    def __init__(
        self, arguments: Sequence[str], cwd: Path, stdin: Path | None = None,
        limits: dict[int, int] | None = None, impatient: bool = False,
    ) -> None:  # fmt: skip
        self.signals: list[signal.Signals] = []
        self._short_of_memory = resource.RLIMIT_AS in (limits or {})
        self._mark = token_hex(8)
        self._temporary = Path(tempfile.mkdtemp(prefix="soak-"))  # short: paths of sockets contain it
        self._shared: set[str] = set()
        self._started = time.monotonic()
        launch = [_LAUNCH] if impatient else ["-m", "bpeflow"]
        environment = {**os.environ, "TMPDIR": str(self._temporary), _MARK: self._mark, "PYTHONFAULTHANDLER": "1"}
        with (stdin or Path(os.devnull)).open("rb") as stdin_file:
            self._popen = subprocess.Popen(
                [sys.executable, *launch, *arguments], cwd=cwd, env=environment, stdin=stdin_file,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        for kind, limit in (limits or {}).items():
            resource.prlimit(self._popen.pid, kind, (limit, limit))
        self._read: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._readers = [threading.Thread(target=self._drain, args=(name,), daemon=True) for name in self._read]
        for reader in self._readers:
            reader.start()
        _running.append(self)

    @property
    def pid(self) -> int:
        """The id of the main process."""
        return self._popen.pid

    @property
    def lives(self) -> bool:
        """Whether the main process is still running."""
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the main process."""
        if self.lives:
            self.signals.append(number)
            self._popen.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """Return all descendants of the main process, oldest first."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def watch(self, until: Callable[[], bool], timeout: float) -> None:
        """Wait until the condition holds, the main process has ended, or the timeout has passed."""
        end = time.monotonic() + timeout
        while self.lives and not until() and time.monotonic() < end:
            self._note_shared()
            time.sleep(0.004)

    def wait(self) -> Ended:
        """Wait until all processes have ended. Processes that hang or linger are killed."""
        self.watch(lambda: False, HANG)
        hung = self.lives
        if hung:  # SIGABRT prints the stacks of all threads
            for process in [*self.children(), psutil.Process(self.pid)]:
                _send(process, signal.SIGABRT)
            time.sleep(1)
            _send(psutil.Process(self.pid), signal.SIGKILL)
        status = self._popen.wait()
        _running.remove(self)
        seconds = time.monotonic() - self._started
        deadline = time.monotonic() + LINGER
        while (left := self.marked()) and time.monotonic() < deadline:
            time.sleep(0.02)
        orphans = [_describe(process) for process in left]
        for process in left:
            _send(process, signal.SIGKILL)
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
            short_of_memory=self._short_of_memory,
        )

    def _drain(self, name: str) -> None:
        stream = self._popen.stdout if name == "stdout" else self._popen.stderr
        while stream is not None and (data := os.read(stream.fileno(), 1 << 16)):
            self._read[name] += data

    def _note_shared(self) -> None:
        """Record the shared memory that the process has mapped: other processes also have files in /dev/shm."""
        try:
            mapped = Path(f"/proc/{self.pid}/maps").read_bytes()
        except OSError:
            return
        self._shared |= {name.decode() for name in _SEMAPHORE.findall(mapped)} - {"(deleted)"}

    def marked(self) -> list[psutil.Process]:
        """Return all running descendants of the main process, even those with another parent by now."""
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
    except OSError:  # the process has ended or belongs to another user
        return b""


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[-200:]}"
    except psutil.NoSuchProcess:
        return str(process.pid)
