"""What this process may use: cores, memory, optional libraries."""

from __future__ import annotations

import os
import resource
from importlib import import_module
from pathlib import Path
from typing import Any

from bpeflow.errors import MissingLibraryError


def available_cores() -> int:
    """Return the number of cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Return the bytes of memory that this process may still take, by the system and by all limits set for it."""
    return min([_available(), *_control_group_limits(), *_process_limits()])


def default_memory_limit() -> int:
    """Return half of the available memory. The rest is for other programs and for what the limit does not cover."""
    return available_memory() // 2


def _available(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that the system can provide without swapping."""
    try:
        return int(meminfo.read_text().partition("MemAvailable:")[2].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        import psutil  # works on every system, but is slow to import

        return int(psutil.virtual_memory().available)


def _control_group_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return the memory limits of this process's control groups (Linux, version 1 or 2) and of their parents."""
    try:
        groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    files = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if not controllers:
            group = root / path.lstrip("/")
            files += [folder / "memory.max" for folder in (group, *group.parents) if folder.is_relative_to(root)]
        elif "memory" in controllers.split(","):
            files += [root / "memory" / part / "memory.limit_in_bytes" for part in (path.lstrip("/"), "")]
    return [limit for file in files if (limit := _read_limit(file)) is not None]


def _process_limits() -> list[int]:
    """Return the memory left to this process by ``ulimit -v`` and ``-d``, which some schedulers set."""
    try:
        sizes = [int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()]
    except (OSError, ValueError):
        return []
    limits = ((resource.RLIMIT_AS, sizes[0]), (resource.RLIMIT_DATA, sizes[5]))
    return [max(most - taken, 0) for limit, taken in limits if (most := resource.getrlimit(limit)[0]) >= 0]


def _read_limit(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such file, or its content is "max"
        return None


def load_extra(module: str, extra: str, needed_by: str) -> Any:
    """Import an optional library.

    Args:
        module: the module to import.
        extra: the extra of this package that installs it.
        needed_by: what needs it, in the plural, for the message.

    Raises:
        MissingLibraryError: the library is not installed. The message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise MissingLibraryError(f"{needed_by} need {module}: pip install 'bpeflow[{extra}]' ({missing})") from missing
