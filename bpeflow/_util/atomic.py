"""Durable files: after a crash or a power cut, a file is either complete or as it was before, and damage is detected.

`atomic_path` writes a file. `publish` gives a set of files its names; it is the one way to do so. `write_json` and
`read_json` are for JSON objects that a run resumes from.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from bpeflow.errors import ConfigError, FormatError

#: Errors that mean a failing disk. Others mean that the system cannot sync folders, which is harmless.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` when the block succeeds. If it fails, nothing is left.

    The temporary path is in the same folder, so renaming stays within one file system and is atomic. A missing folder
    is created. If `path` is a symbolic link, the link stays and its target is replaced.

    Raises:
        FormatError: `path` is a folder, a device or a pipe.
        OSError: `path` cannot be written. The error names `path`.
    """
    temporary = temporary_path(path)
    made: list[Path] = []
    try:
        with name_errors(path, temporary):
            made = make_folder(temporary.parent)
            yield temporary
            sync_file(temporary)
        publish({path: temporary})
    except BaseException:
        with suppress(OSError):  # the original error matters more than a failure to clean up
            temporary.unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def publish(files: Mapping[Path, Path], stale: Iterable[Path] = ()) -> None:
    """Move durable files to their names, in order. Each step is durable before the next.

    The last file is the mention: whoever finds it finds all the others. A process that is killed on the way has removed
    or moved some of them; a later call with the rest does what is left.

    Args:
        files: where each file is now, by its own name.
        stale: earlier files to remove first, in order. An earlier mention comes first.

    Raises:
        OSError: a file cannot be moved or removed.
    """
    for path in [*stale]:
        file = Path(os.path.realpath(path))
        file.unlink(missing_ok=True)
        sync_folder(file.parent)
    for path, temporary in files.items():
        target = Path(os.path.realpath(path))
        with name_errors(path, temporary):
            temporary.replace(target)
        sync_folder(target.parent)


@contextmanager
def name_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Add the path to an `OSError` that names no file, or the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def temporary_path(path: Path, owner: int | None = None) -> Path:
    """Return the temporary path of a file, with the number of its owner, by default this process.

    Raises:
        FormatError: there is something other than a regular file.
        OSError: the temporary name, which is longer than the file's, is too long.
    """
    check_replaceable(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid() if owner is None else owner}.part")
    with name_errors(path, temporary), suppress(FileNotFoundError):
        temporary.stat()
    return temporary


def check_replaceable(path: Path) -> None:
    """Raise `FormatError` if there is something other than a regular file at a path."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # a new file, or a link to a file that does not exist yet
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise FormatError(f"{path}: is {kind}; output can only create or replace a regular file")


def check_not_input(outputs: Iterable[Path], files: Iterable[str | Path]) -> None:
    """Raise `ConfigError` if an output would replace an input."""
    inputs = {os.path.realpath(file) for file in files}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise ConfigError(f"{path}: is one of the input files and would be overwritten; choose another output file")


# ---- temporary files of killed processes ----


def remove_parts(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder and its subfolders.

    Only for callers who know that no other process is writing there.
    """
    for part in folder.glob("**/.*.*.part"):
        part.unlink(missing_ok=True)


def hold_part(file: IO[Any]) -> None:
    """Lock a temporary file of `atomic_path` while it is open, so `remove_dead_parts` knows that it is in use."""
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_dead_parts(path: Path) -> None:
    """Remove the temporary files that killed processes left of a file.

    Other processes may be writing the same file now. A temporary file is dead if its lock is free (see `hold_part`).
    Where locks are not supported, nothing is removed.
    """
    target = Path(os.path.realpath(path))
    for part in target.parent.glob(".*.part"):
        if re.fullmatch(rf"\.{re.escape(target.name)}\.\d+\.part", part.name) and is_unlocked(part):
            with suppress(OSError):
                part.unlink(missing_ok=True)


def is_unlocked(part: Path) -> bool:
    try:
        with part.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or locks are not supported
        return False
    return True


# ---- flushing to disk ----


def sync_file(path: Path) -> None:
    """Flush a file's content to disk, whichever process wrote it. Raises `OSError`."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries (created, renamed, removed) to disk. Raises `OSError` if the disk fails.

    Systems that cannot sync folders are ignored, as some of them keep folders durable anyway.
    """
    opened: list[int] = []
    try:
        opened.extend(map(os.open, [folder], [os.O_RDONLY]))  # one call of compiled code: Ctrl-C comes before or after
        os.fsync(opened[0])
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def make_folder(folder: Path) -> list[Path]:
    """Create a folder and its missing parents durably. Returns those, innermost first. Raises `OSError`."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(error.errno, "exists, but is not a folder", str(folder)) from error
    for path in missing:
        sync_folder(path.parent)
    return missing


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; atomically. Raises `OSError`."""
    with atomic_path(path) as temporary:  # backslashreplace: undecodable bytes in file names become \udcXX
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_json(path: Path, values: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write a JSON object with its checksum; atomically. Raises `OSError`."""
    write_text(path, json.dumps(checksummed(values), indent=indent, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises `OSError`, or `ValueError` if it is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it is not an object")
        return verified(values)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


#: The key of the checksum.
_CHECKSUM = "sha256"


def checksummed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` with its checksum added."""
    return {**body, _CHECKSUM: _digest(json.loads(json.dumps(body)))}


def verified(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without the checksum. Raises `ValueError` if it is missing or does not match."""
    body = {key: value for key, value in values.items() if key != _CHECKSUM}
    if values.get(_CHECKSUM) != _digest(body):
        raise ValueError("its checksum does not match")
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
