"""`RunLock`: one run at a time in a folder."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bpeflow._util.atomic import name_errors, sync_folder
from bpeflow._util.file_lock import in_place, open_locked
from bpeflow.errors import ConfigError, FolderInUseError
from bpeflow.run_dir.layout import LOCK_FILE


class RunLock:
    """A lock on a folder, which must exist, held while the block runs: one run at a time in a folder.

    It is the lock of a file in the folder (see `open_locked`). A dead run's lock does no harm, and no reused process id
    is mistaken for its owner. The file's content is for people (who holds the lock) and for the next run (which scratch
    folder a dead run left behind).

    Attributes:
        left_behind: the notes of the previous holder if it died holding the lock; else empty.
    """

    def __init__(self, folder: Path) -> None:
        self.left_behind: dict[str, Any] = {}
        self._path = folder / LOCK_FILE

    def __enter__(self) -> RunLock:
        """Take the lock. Raises `FolderInUseError`, which names the process that holds it, or `ConfigError`."""
        try:
            self._file = open_locked(self._path)
        except BlockingIOError:
            notes = self._read()
            who = f" (process {notes['pid']} on {notes.get('host')}, since {notes.get('since')})" if notes else ""
            raise FolderInUseError(
                f"another run{who} is at work in {self._path.parent}: wait for it to end, stop it, or use another "
                "out_dir"
            ) from None
        except OSError as error:
            folder = self._path.parent
            raise ConfigError(f"cannot lock the run folder {folder}: {LOCK_FILE}: {error.strerror}") from error
        self.left_behind = self._read()
        return self

    def sign(self, **notes: Any) -> None:
        """Replace the previous holder's notes by this process's identity and `notes`, durably.

        Call it once the previous notes have been dealt with: if this process is killed before, the next run must still
        find them.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        with name_errors(self._path):
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), json.dumps(who | notes).encode(), 0)
            os.fsync(self._file.fileno())
        sync_folder(self._path.parent)

    def __exit__(self, *exception: object) -> None:
        # Remove the file while holding the lock: a process that has opened it meanwhile notices, and uses a new file.
        if self.in_place():
            self._path.unlink(missing_ok=True)
        self._file.close()

    def in_place(self) -> bool:
        """Return whether the locked file is in the folder: neither was renamed or removed."""
        return in_place(self._file, self._path)

    def _read(self) -> dict[str, Any]:
        try:
            notes = json.loads(self._path.read_bytes())
        except (OSError, ValueError):  # new, or locked a moment ago
            return {}
        return notes if isinstance(notes, dict) and "pid" in notes else {}
