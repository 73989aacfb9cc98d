"""The output of a command on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


def screen_of(*arguments: str) -> bytes:
    """Run bpeflow's command line on a terminal with 100 columns, and return its output."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bpeflow", *arguments],
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(slave)
    screen = b""
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:  # how Linux reports that the other side has closed
            break
        if not read:
            break
        screen += read
    os.close(master)
    assert process.wait(timeout=30) == 0
    return screen


@contextmanager
def terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Make a new terminal the standard output and standard error of this process."""
    master, slave = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setattr("sys.stderr", stream)
        screen = Screen(master)
        try:
            yield screen
        finally:
            monkeypatch.undo()
            with suppress(OSError):
                stream.flush()
    screen.close()


class Screen:
    """What was written to a terminal."""

    def __init__(self, master: int) -> None:
        self.raw = ""
        self._master = master
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        parts = []
        with suppress(OSError):  # how Linux reports that the other side has closed
            while part := os.read(self._master, 65536):
                parts.append(part)
        self.raw = b"".join(parts).decode()

    def close(self) -> None:
        """Wait for the last output."""
        self._reader.join(10)
        os.close(self._master)

    @property
    def lines(self) -> list[str]:
        """The lines without colours and cursor movements; redrawn ones too."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)
        return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]
