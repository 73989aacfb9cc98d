"""`RunLock`: one run at a time in a folder, and what the next one must know of a run that died there.

The lock is the kernel's (``flock``), on a file in the folder. So it ends with its process, however that ends: a dead
run's lock does no harm, and no process number is ever taken for another's. What is written in the file is for people
(who holds it) and for the next run (which scratch folder the dead one has left); whether it is held, only the kernel
says. Where the file system or the platform knows no such locks, a warning says that nobody watches.
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

#: File descriptors of the locks that this process holds. A forked child would hold them, too, and beyond its parent's
#: death: it closes them at once.
_held: set[int] = set()


def _close_in_child() -> None:
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class RunLock:
    """A lock on a folder, while the block runs.

    Attributes:
        left_behind: what the run noted down that held the lock last, if it died with it; else empty.
    """

    def __init__(self, folder: Path) -> None:
        """Get ready to lock `folder`, which is there."""
        self.left_behind: dict[str, Any] = {}
        self._path = folder / LOCK_FILE
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        """Take the lock. Raises `FolderInUseError`, which names the holder, and `ConfigError` for a file we may not open."""
        while self._descriptor < 0:
            self._descriptor = self._try()
        _held.add(self._descriptor)
        self.left_behind = _read(self._descriptor)
        return self

    def sign(self, **notes: Any) -> None:
        """Write down who we are, and `notes`, in the place of what the last one wrote.

        Once that is seen to: if we are killed before, the next run must still find it. When this returns, it finds what
        is written now, even if the power is cut.
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
        # Removed while it is held: who has opened it in the meantime finds out, and begins again with a new one.
        self._path.unlink(missing_ok=True)
        _held.discard(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _try(self) -> int:
        """Open the file and lock it; -1 if it was removed in between."""
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
        log.warning("this platform has no file locks: see to it that no other run uses %s", path.parent)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderInUseError(
            f"another run{_described(_read(descriptor))} is at work in {path.parent}: wait for its end, stop it, or "
            "name another out_dir"
        ) from None
    except OSError as error:  # some network file systems
        log.warning("%s cannot be locked (%s): see to it that no other run uses %s", path, error.strerror, path.parent)


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
    except (OSError, ValueError):  # it is new, or has only just been locked
        return {}
    return notes if isinstance(notes, dict) else {}


def _described(notes: dict[str, Any]) -> str:
    if "pid" not in notes:
        return ""
    return f" (process {notes['pid']} on {notes.get('host')}, since {notes.get('since')})"
