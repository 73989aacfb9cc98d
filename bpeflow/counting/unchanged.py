"""Whether files are still what they were when they were found."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from bpeflow.counting.fingerprint import parts_of
from bpeflow.counting.sources import Entry
from bpeflow.errors import CorpusError

log = logging.getLogger(__name__)


def check_unchanged(entries: Iterable[Entry], remedy: str, may_grow: bool = False) -> None:
    """Raise `CorpusError` for a file of this machine that was changed, or replaced, since it was found.

    With `may_grow` one that is longer now is taken for a log that goes on being written: what has come since then was
    not read, and a warning says so.
    """
    for entry in entries:
        for name, size, modified, place in parts_of(entry):
            if place != "file":
                continue
            try:
                status = Path(name).stat()
            except OSError as error:
                raise CorpusError(f"cannot read {name}: {error.strerror}; {remedy}") from error
            if may_grow and size is not None and status.st_size > size:
                log.warning("%s has %d bytes now: those after the first %d are left out", name, status.st_size, size)
            elif (status.st_size, status.st_mtime_ns) != (size, modified):
                raise CorpusError(f"{name} was changed while it was read, which may have given some of both; {remedy}")
