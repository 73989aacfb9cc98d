"""Where a benchmark ran, with what, and on what."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

#: Small, since the memory of this process is the floor of what is measured (see `process.measure`).
_BLOCK = 1 << 20


def describe_machine() -> dict[str, Any]:
    """The machine, and how busy it is: the load average of a minute before the first process."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The versions of packages; None for those that are not installed."""
    return {package: _version(package) for package in sorted(set(packages))}


def read_input(path: Path) -> dict[str, Any]:
    """Read a file once, so that it is in the page cache (where it fits) for every contender alike; say what it is."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return {"path": path.name, "bytes": size, "sha256": digest.hexdigest()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
