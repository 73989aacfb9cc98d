"""`RunLock`: one run at a time in a folder, and notes for the run that comes after a dead one.

The lock is the kernel's (``flock``) on a file in the folder, so it ends with its process, however that ends. A dead
run's lock does no harm, and no reused process id is mistaken for its owner. The file's content is for people (who holds
the lock) and for the next run (which scratch folder a dead run left behind). Only the kernel decides whether the
lock is held. Where the file system or the platform has no such locks, a warning says that the folder is not protected.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from bpeflow._util.atomic import sync_folder
from bpeflow.errors import ConfigError, FolderInUseError
from bpeflow.run_dir.layout import LOCK_FILE

try:
    import fcntl
except ImportError:  # not on every platform
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

#: File descriptors of the locks that this process holds. A forked child closes them at once: it would otherwise hold
#: the locks beyond its parent's death.
_held: set[int] = set()


def _close_in_child() -> None:
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class RunLock:
    """A lock on a folder, held while the block runs.

    Attributes:
        left_behind: the notes of the previous holder if it died holding the lock; else empty.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare to lock `folder`, which must exist."""
        self.left_behind: dict[str, Any] = {}
        self._path = folder / LOCK_FILE
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        """Take the lock.

        Raises:
            FolderInUseError: another process holds it; the message names the process.
            ConfigError: the lock file cannot be opened.
        """
        while self._descriptor < 0:
            self._descriptor = self._try()
        _held.add(self._descriptor)
        self.left_behind = _read(self._descriptor)
        return self

    def sign(self, **notes: Any) -> None:
        """Replace the previous holder's notes by this process's identity and `notes`, durably.

        Call it once the previous notes have been dealt with: if this process is killed before, the next run must still
        find them.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(who | notes).encode(), 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise _cannot_lock(self._path, error) from error
        sync_folder(self._path.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Remove the file while holding the lock: a process that has opened it meanwhile notices, and uses a new file.
        self._path.unlink(missing_ok=True)
        _held.discard(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _try(self) -> int:
        """Open the file, lock it and return its descriptor; -1 if the file was removed in between."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _cannot_lock(self._path, error) from error
        try:
            _lock(descriptor, self._path)
            if _is_still(self._path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return -1


def _lock(descriptor: int, path: Path) -> None:
    if fcntl is None:
        log.warning("this platform has no file locks: make sure that no other run uses %s", path.parent)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderInUseError(
            f"another run{_described(_read(descriptor))} is at work in {path.parent}: wait for it to end, stop it, or "
            "use another out_dir"
        ) from None
    except OSError as error:  # some network file systems
        log.warning("%s cannot be locked (%s): make sure that no other run uses %s", path, error.strerror, path.parent)


def _cannot_lock(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot lock the run folder {path.parent}: {path.name}: {error.strerror}")


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    try:
        notes = json.loads(os.pread(descriptor, 1 << 16, 0))
    except (OSError, ValueError):  # new, or locked a moment ago
        return {}
    return notes if isinstance(notes, dict) else {}


def _described(notes: dict[str, Any]) -> str:
    if "pid" not in notes:
        return ""
    return f" (process {notes['pid']} on {notes.get('host')}, since {notes.get('since')})"
