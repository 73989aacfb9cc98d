"""Peak memory of the calling process."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes.

    On Linux the figure comes from /proc: `ru_maxrss` survives exec, so a spawned process would report its parent's
    peak.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    except (OSError, IndexError):
        import resource  # not on every platform

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
