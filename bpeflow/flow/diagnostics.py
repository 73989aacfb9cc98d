"""Why a worker died or could not be started, in words that help."""

from __future__ import annotations

import errno
import signal

from .errors import FlowError, WorkerDiedError

_HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory",
    "SIGHUP": "its terminal was closed: start it with nohup, or in tmux",
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

#: The exit status of a worker that had not even the memory to report what it failed with (as sysexits.h has it: 71, an
#: error of the system).
NO_MEMORY_TO_REPORT = 71

#: Lack of memory, and what the interpreter makes of it at times.
NO_MEMORY = (MemoryError, SystemError)
_SILENT_HINT = "os._exit or sys.exit in the stage function, or in something that it calls"
_EXIT_HINT = f"{_SILENT_HINT}; see the output above"
_USED_UP = "processes (ulimit -u), open files (ulimit -n) or memory are used up"

_START_HINT = (
    "it did not come as far as its own code; see the output above. If that shows the main script being run again, "
    'put what starts the pipeline under: if __name__ == "__main__":'
)


def worker_died(stage: str, number: int, workers: int, pid: int, status: int | None, began: bool) -> WorkerDiedError:
    """Return the exception for a worker that ended with this ``Process.exitcode`` and without finishing its work."""
    how, hint = _describe(status)
    if not began and status is not None and 0 < status != _FORK_SERVER_GONE:
        hint = _START_HINT
    return WorkerDiedError(
        f"stage {stage!r}: worker {number} of {workers} (pid {pid}) {how}{': ' if hint else ''}{hint}"
    )


def cannot_start(stage: str, number: int, workers: int, error: OSError | EOFError) -> FlowError:
    """Return the exception for a worker that could not be started, as multiprocessing tells it."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    remedy = f"{_USED_UP}, or the fork server was killed; see the output above. Use fewer workers"
    if "path too long" in reason:
        remedy = "a socket must be made in the folder for temporary files; name another one in TMPDIR"
    return FlowError(f"stage {stage!r}: worker {number} of {workers} could not be started ({reason}): {remedy}")


def cannot_begin(error: OSError) -> FlowError:
    """Return the exception for what comes before the first worker: queues, and the process that looks after them."""
    remedy = f"{_USED_UP}. Use fewer workers"
    if error.errno in (errno.ENOSPC, errno.ENOENT, errno.ENOSYS):
        remedy = (
            "as a rule /dev/shm is full or missing; make room there, or give the container more "
            "(docker run --shm-size=64m)"
        )
    return FlowError(f"no queues between processes could be made ({error.strerror or error}): {remedy}")


def _describe(status: int | None) -> tuple[str, str]:
    if status is None:
        return "disappeared; its exit status was collected by something else in this process", ""
    if status == 0:
        return "left with exit status 0 before its work was done", _SILENT_HINT
    if status == NO_MEMORY_TO_REPORT:
        return "ran out of memory", "use fewer workers or smaller chunks, or add memory"
    if status == _FORK_SERVER_GONE:
        return f"left with exit status {status}", f"{_EXIT_HINT}. Or the fork server was killed: this is how it looks"
    if status > 0:
        return f"left with exit status {status}", _EXIT_HINT
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}", _HINTS.get(name, "")
