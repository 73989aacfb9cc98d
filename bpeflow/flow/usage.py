"""How much memory a process has needed."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the largest resident memory that this process has had, in bytes.

    On Linux from /proc: ``ru_maxrss`` survives exec, so that a spawned process would show the size of its parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):
        import resource  # not on every platform

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
