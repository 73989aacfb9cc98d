"""`RunLock`: one run at a time in a folder."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import sync_folder
from bpeflow.errors import ConfigError, FolderInUseError
from bpeflow.flow.shared import owned
from bpeflow.run_dir.layout import LOCK_FILE

log = logging.getLogger(__name__)


class RunLock:
    """A lock on a folder, which must exist, held while the block runs: one run at a time in a folder.

    The lock is the kernel's (``flock``) on a file in the folder, so it ends with its process, however that ends. A dead
    run's lock does no harm, and no reused process id is mistaken for its owner. The file's content is for people (who
    holds the lock) and for the next run (which scratch folder a dead run left behind). Where the file system has no
    such locks, a warning says that the folder is not protected.

    Attributes:
        left_behind: the notes of the previous holder if it died holding the lock; else empty.
    """

    def __init__(self, folder: Path) -> None:
        self.left_behind: dict[str, Any] = {}
        self._path = folder / LOCK_FILE

    def __enter__(self) -> RunLock:
        """Take the lock. Raises `FolderInUseError`, which names the process that holds it, or `ConfigError`."""
        while not self._try():
            pass
        self.left_behind = self._read()
        return self

    def sign(self, **notes: Any) -> None:
        """Replace the previous holder's notes by this process's identity and `notes`, durably.

        Call it once the previous notes have been dealt with: if this process is killed before, the next run must still
        find them.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        try:
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), json.dumps(who | notes).encode(), 0)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._cannot_lock(error) from error
        sync_folder(self._path.parent)

    def __exit__(self, *exception: object) -> None:
        # Remove the file while holding the lock: a process that has opened it meanwhile notices, and uses a new file.
        if self.in_place():
            self._path.unlink(missing_ok=True)
        self._file.close()

    def _try(self) -> bool:
        """Open the file and lock it; return False if it was removed in between."""
        try:
            # A forked child closes it at once: it would otherwise hold the lock beyond its parent's death.
            self._file = owned(os.open, self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._cannot_lock(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notes = self._read()
            who = f" (process {notes['pid']} on {notes.get('host')}, since {notes.get('since')})" if notes else ""
            raise FolderInUseError(
                f"another run{who} is at work in {self._path.parent}: wait for it to end, stop it, or use another "
                "out_dir"
            ) from None
        except OSError as error:  # some network file systems
            log.warning(
                "%s cannot be locked (%s): make sure that no other run uses %s",
                self._path,
                error.strerror,
                self._path.parent,
            )
        return self.in_place()

    def in_place(self) -> bool:
        """Return whether the locked file is in the folder: neither was renamed or removed."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def _read(self) -> dict[str, Any]:
        try:
            notes = json.loads(os.pread(self._file.fileno(), 1 << 16, 0))
        except (OSError, ValueError):  # new, or locked a moment ago
            return {}
        return notes if isinstance(notes, dict) and "pid" in notes else {}

    def _cannot_lock(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot lock the run folder {self._path.parent}: {LOCK_FILE}: {error.strerror}")
