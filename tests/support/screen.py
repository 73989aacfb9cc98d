"""The output of a command on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


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
