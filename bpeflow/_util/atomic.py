"""Writing files so that nobody ever sees half of one, whatever fails: the program, the disk, the power."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from bpeflow.errors import FormatError

try:
    import fcntl
except ImportError:  # not on every platform
    fcntl = None  # type: ignore[assignment]


#: What says that the disk fails, and not that the system has no need to be asked.
_DISK_FAILS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class SupportsFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which takes the place of `path` when the block ends well.

    The temporary file stands beside its target, so that the final rename stays within one file system and is atomic;
    it is flushed to the disk first, so that the name never outlives the content, and its folder last: who comes after
    the block may rely on the file, and the changes of names before it in that folder, even if the power is cut. When
    the block raises, the temporary file is removed and whatever stood at `path` before still stands there. Where `path`
    is a symbolic link, the link stays and the file that it leads to is replaced.

    Raises `FormatError` where `path` is a folder, a device or a pipe, and `OSError`, which names `path`, where it
    cannot be written.
    """
    _check_replaceable(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        sync_file(temporary)
        temporary.replace(target)
        sync_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):  # what could not be removed matters less than why it should be
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error  # name what the caller asked for
        raise


def remove_parts(folder: Path, names: Iterable[str]) -> None:
    """Remove what `atomic_path` left of files with these names, or globs, when its process was killed.

    For those who know that nobody else writes such files there now.
    """
    for name in names:
        place = Path(name)
        for part in folder.glob(str(place.with_name(f".{place.name}.*.part"))):
            part.unlink(missing_ok=True)


def hold_part(file: SupportsFileno) -> None:
    """Lock a temporary file of `atomic_path` while it is open: so `remove_dead_parts` knows that it is in use."""
    if fcntl is not None:
        with suppress(OSError):  # some network file systems
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_dead_parts(path: Path, *beside: Path) -> None:
    """Remove what `atomic_path` left of a file, and of those beside it, when a process that held it was killed.

    For files that anybody may be writing now. Where nobody can tell, nothing is removed.
    """
    target = Path(os.path.realpath(path))
    for part in target.parent.glob(".*.part") if target.parent.is_dir() else ():
        match = re.fullmatch(rf"\.{re.escape(target.name)}\.(\d+)\.part", part.name)
        if match is None or not _is_forsaken(part):
            continue
        for file in (target, *(Path(os.path.realpath(other)) for other in beside)):
            with suppress(OSError):
                file.with_name(f".{file.name}.{match[1]}.part").unlink(missing_ok=True)


def _is_forsaken(part: Path) -> bool:
    """Whether no process holds the lock of a file."""
    if fcntl is None:
        return False
    try:
        with part.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held; or there are no locks here
        return False
    return True


def sync_file(path: Path) -> None:
    """Have the content of a file, whoever wrote it, outlive a power cut. Raises `OSError`."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, to outlive a power cut. Raises `OSError`."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(error.errno, "there is a file of this name, and no folder", str(folder)) from error
    for path in missing:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder, new, changed or removed, outlive a power cut. Raises `OSError` if the disk fails."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _DISK_FAILS:
            raise OSError(error.errno, error.strerror, str(folder)) from error

        # Some systems do it anyway and know no such call.


def _check_replaceable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a new file, or the file that a link leads to is yet to be made
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise FormatError(f"{path}: is {kind}; output takes the place of a regular file, or makes one")
