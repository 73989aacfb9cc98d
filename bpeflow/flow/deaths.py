"""Why a worker died, in words that help: the text of `WorkerDied`."""

from __future__ import annotations

import signal

from .errors import WorkerDied

_HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory",
    "SIGTERM": "something asked it to end: a job scheduler or container at its limit, or a person",
    "SIGSEGV": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGBUS": "a memory-mapped file that became shorter, or a full /dev/shm or disk",
    "SIGABRT": "native code gave up: a failed allocation or assertion, see the output above",
    "SIGILL": "native code built for another processor",
    "SIGFPE": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGXCPU": "the limit of processor time (ulimit -t)",
    "SIGXFSZ": "the limit of file size (ulimit -f)",
}
_FORK_SERVER_GONE = 255  # multiprocessing's word for a worker whose fork server can no longer tell
_SILENT_HINT = "os._exit or sys.exit in the stage function, or in something that it calls"
_EXIT_HINT = f"{_SILENT_HINT}; see the output above"
_START_HINT = (
    "it did not come as far as its own code; see the output above. If that shows the main script being run again, "
    'put what starts the pipeline under: if __name__ == "__main__":'
)


def worker_died(stage: str, number: int, workers: int, pid: int, status: int | None, began: bool) -> WorkerDied:
    """Return the exception for a worker that ended with this ``Process.exitcode`` and without finishing its work."""
    how, hint = _describe(status)
    if not began and status is not None and status > 0:
        hint = _START_HINT
    return WorkerDied(f"stage {stage!r}: worker {number} of {workers} (pid {pid}) {how}{': ' if hint else ''}{hint}")


def _describe(status: int | None) -> tuple[str, str]:
    if status is None:
        return "disappeared; its exit status was collected by something else in this process", ""
    if status == 0:
        return "left with exit status 0 before its work was done", _SILENT_HINT
    if status == _FORK_SERVER_GONE:
        return f"left with exit status {status}", f"{_EXIT_HINT}. Or the fork server was killed: this is how it looks"
    if status > 0:
        return f"left with exit status {status}", _EXIT_HINT
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}", _HINTS.get(name, "")
