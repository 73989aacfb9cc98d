"""Text streams that cannot be written to, as a shell's redirections make them."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

KINDS = ("full", "closed pipe", "hung-up terminal")


@contextmanager
def broken_stream(kind: str) -> Iterator[TextIO]:
    """Open a stream whose writes fail: `2>/dev/full`, `| head -1` after its line, or a terminal that has gone."""
    if kind == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe() if kind == "closed pipe" else pty.openpty()
        os.close(reader)
    stream = os.fdopen(descriptor, "w", encoding="utf-8")
    try:
        yield stream
    finally:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)  # what it buffers can be written now
        os.close(null)
        stream.close()
