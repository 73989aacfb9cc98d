"""A small producer/consumer framework: stages in processes, bounded queues between them, clean failure, a monitor.

It builds on the standard library's multiprocessing (and on psutil, for the monitor) and knows nothing about text. The
example counts words in the calling process. Without `inline=True` it would run one process for the reader and four for
the counters. Those must be able to import `read` and `count`, from any module. If that module is the main script, the
code that starts the pipeline goes under `if __name__ == "__main__":`.

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
    >>> for counts in Pipeline(Source("reader", read), [counter]).run(inline=True):
    ...     totals.update(counts)
    >>> totals.most_common(2)
    [('to', 2), ('be', 2)]

The processes, and who puts what on which queue:

    main process                 worker processes
    ============                 ================
                                 source ×1
                                   │  items, pickled, within the bounds of
                                   ▼  the queue
    supervisor ─── Stop ──────▶ [queue]
      (thread)                     │
        │  ▲                       ▼
        │  └─ reports, exits ─── stage ×N  ──▶ … ──▶ stage ×M
        │                                              │
        │      Stop                                    ▼
        └───────────────────────────────────────▶ [results queue]
                                                       │
    Pipeline.run() ◀───────────── items ───────────────┘
      for item in …: the sink

    Monitor (thread) ◀── Snapshot ── meters: a row of shared memory for each process

The modules:

* `spec`: the parts of a pipeline, as users describe them
* `pipeline`: the whole; `pool`: one run of it; `inline`: a run without processes
* `worker`: the code of a worker process; `launch`: starting processes; `thread_starts`: starting threads
* `channel`: queues and back-pressure; `meters`: shared counters; `messages`: everything else that processes exchange
* `supervisor`: how every run ends (the shutdown protocol); `diagnostics`: error messages for dead workers
* `monitor`: watching a run; `stalls`: stages that make no progress; `usage`: peak memory
"""

from .errors import FlowError, WorkerDiedError
from .messages import WorkerReport
from .meters import Activity, QueueDepth
from .monitor import Monitor, MonitorSample, ProcessUse, StageRate, stall_watch
from .pipeline import Pipeline, Snapshot, StageTotals, WorkerState
from .spec import QueueSpec, Source, Stage
from .stalls import Stall
from .usage import peak_memory

__all__ = [
    "Activity",
    "FlowError",
    "Monitor",
    "MonitorSample",
    "Pipeline",
    "ProcessUse",
    "QueueDepth",
    "QueueSpec",
    "Snapshot",
    "Source",
    "Stage",
    "StageRate",
    "StageTotals",
    "Stall",
    "WorkerDiedError",
    "WorkerReport",
    "WorkerState",
    "peak_memory",
    "stall_watch",
]
