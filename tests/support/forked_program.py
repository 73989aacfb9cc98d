"""The program, forked from a process that has imported it, as importing takes most of the time of a small run.

A `ForkedProgram` is started by a template: a process without threads, started at the first use, that has imported the
program and serves requests until this process ends. A run differs from ``python -m bpeflow`` in nothing that follows
the imports. (The template is not a child of this process, as tests look for children that are left over.)
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

INJECTED = Path(__file__).parent / "injected"
_NUMBER = struct.Struct("<q")


class ForkedProgram:
    """A run of the program, with the methods of `subprocess.Popen` that tests use. It leads a session of its own."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors, errors = os.pipe()
        self._status, status = os.pipe()
        request = json.dumps([[*arguments], dict(environment), str(Path.cwd())]).encode()
        socket.send_fds(_template(), [_NUMBER.pack(len(request)) + request], [errors, status])
        for descriptor in (errors, status):
            os.close(descriptor)
        self._text = b""
        self.returncode: int | None = None
        self.pid = self._next_number()

    def _next_number(self) -> int:
        [number] = _NUMBER.unpack(os.read(self._status, _NUMBER.size))
        return int(number)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._next_number()
            os.close(self._status)
        return self.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[None, str]:
        """Wait for the end. Return what was written to standard error."""
        deadline = time.monotonic() + timeout
        while select.select([self._errors], [], [], max(deadline - time.monotonic(), 0))[0]:
            if not (block := os.read(self._errors, 1 << 16)):
                break
            self._text += block
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("bpeflow", timeout, stderr=self._text)
            select.select([self._status], [], [], max(deadline - time.monotonic(), 0))
        os.close(self._errors)
        return None, self._text.decode()

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, signal.SIGKILL)


@cache
def _template() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        null = subprocess.DEVNULL
        subprocess.run(command, pass_fds=[theirs.fileno()], check=True, stdin=null, stdout=null)
    return ours


# ---- in the template ----


def next_run(requests: socket.socket) -> tuple[list[str], dict[str, str], str]:
    """Return, in a process forked for each request, its arguments, its environment and its folder."""
    while True:
        header, descriptors, _, _ = socket.recv_fds(requests, _NUMBER.size, 2)
        if not header:
            os._exit(0)
        request = requests.recv(*_NUMBER.unpack(header), socket.MSG_WAITALL)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    errors, status = descriptors
    if run := os.fork():
        os.close(errors)
        os.write(status, _NUMBER.pack(run))
        os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1])))
        os._exit(0)
    os.close(status)
    os.dup2(errors, 2)
    os.close(errors)
    arguments, environment, folder = json.loads(request)
    return arguments, environment, folder


def become(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Make this process what a shell would have started."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    if "CRASH" in environment:
        spec = importlib.util.spec_from_file_location("injected_faults", INJECTED / "sitecustomize.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    from bpeflow import __main__ as program

    for module in ("cli.encode", "cli.main", "cli.train"):
        importlib.import_module(f"bpeflow.{module}")
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        signal.signal(number, handler)  # ignored in the background and under nohup
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    become(*next_run(socket.socket(fileno=int(sys.argv[1]))))
    sys.argv[0] = str(program.__file__)
    program.run()
