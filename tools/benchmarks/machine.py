"""Describe the computer, the package versions and the input of a benchmark."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

#: Bytes to read at a time. Small, since the memory of this process is a lower bound of what `process.measure` reports.
_BLOCK = 1 << 20


def describe_machine() -> dict[str, Any]:
    """Return the hardware and software of this computer, and its load average over the last minute."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of packages, None if a package is not installed."""
    return {package: _version(package) for package in sorted(set(packages))}


def read_input(path: Path) -> dict[str, Any]:
    """Read a file and describe it. Reading puts it into the page cache, if it fits, for all contenders alike."""
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
    except OSError:  # not Linux
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
