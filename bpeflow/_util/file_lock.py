"""`open_locked`: a file that is locked while it is open."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from bpeflow.flow.shared import Descriptor, owned

log = logging.getLogger(__name__)


def open_locked(path: Path) -> Descriptor:
    """Open a file to read and to append to, which is made if it is missing, and lock it while it is open.

    The lock is the kernel's (``flock``), so it ends with its process, however that ends. Only its holder may remove the
    file. Where the file system has no such locks, a warning says so.

    Raises:
        BlockingIOError: another process, or this one, has locked the file.
        OSError: it cannot be opened.
    """
    while True:
        # A forked child closes it at once: it would otherwise hold the lock beyond its parent's death.
        file = owned(os.open, path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _lock(file, path)
            if in_place(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # it was removed between opening and locking


def _lock(file: Descriptor, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:  # some network file systems
        log.warning("%s cannot be locked (%s): make sure that no other process uses it", path, error.strerror)


def in_place(file: Descriptor, path: Path) -> bool:
    """Return whether an open file is the one at a path: neither was renamed or removed."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False
