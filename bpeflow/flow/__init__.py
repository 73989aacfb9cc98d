"""The multiprocessing framework: stages in processes or threads, bounded queues, clean failure, a monitor.

It builds on the standard library (and on psutil, for the monitor) and knows nothing about text. The example counts
words in threads of the calling process. Without `executor="threads"` it would run one process for the reader and four
for the counters. Those must be able to import `read` and `count`, so these could not be defined in the main script.

    >>> from collections import Counter
    >>> from bpeflow.flow import Pipeline, QueueSpec, Source, Stage
    >>> def read():
    ...     yield from ["to be or", "not to be"]
    >>> def count(lines):
    ...     counts = Counter()
    ...     for line in lines:
    ...         counts.update(line.split())
    ...     yield counts
    >>> counter = Stage("counter", count, reads=QueueSpec("line_queue"), workers=4)
    >>> totals = Counter()
    >>> for counts in Pipeline(Source("reader", read), [counter]).run(executor="threads"):
    ...     totals.update(counts)
    >>> totals.most_common(2)
    [('to', 2), ('be', 2)]

The processes, and what passes between them:

    main process                          worker processes
    ============                          ================
      │ starts, kills                     source ×1
      ▼                                      │  items, pickled, within the
    fork server ── forks ──────────────▶     ▼  bounds of the queue
      │                                   [queue: a pipe, a lock, credits]
      │ exits                                │
      ▼                                      ▼
    Pipeline.run() ◀──── failures ─────── stage ×N  ──▶ … ──▶ stage ×M
      for item in …: the sink                                    │
      ▲                                                          │
      └──────────────── items ─────────── [results queue] ◀──────┘

    Monitor (thread) ◀── Snapshot ── meters: a row of shared memory for each worker
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import FlowError, WorkerDiedError
    from .monitor import Monitor, MonitorSample, ProcessUse, StageRate, stall_watch
    from .pipeline import MAIN, Executor, Pipeline, StageReport, in_order, map_in_threads
    from .shared import QueueDepth, peak_memory
    from .stage import QueueSpec, Source, Stage, reduce_out_of_band, set_gauge, wait_readable

__all__ = ["MAIN", "Executor", "Pipeline", "QueueSpec", "Source", "Stage", "StageReport", "in_order", "map_in_threads"]
__all__ += ["FlowError", "WorkerDiedError", "peak_memory", "reduce_out_of_band", "set_gauge", "wait_readable"]
__all__ += ["Monitor", "MonitorSample", "ProcessUse", "QueueDepth", "StageRate", "stall_watch"]


if not TYPE_CHECKING:  # which would take misspelt names for correct

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: errors need none of the machinery."""
        for module in ("errors", "shared", "stage", "pipeline", "monitor") if name in __all__ else ():
            if hasattr(found := import_module(f".{module}", __name__), name):
                globals()[name] = value = getattr(found, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
