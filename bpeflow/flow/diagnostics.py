"""Error messages for workers that died or could not be started."""

from __future__ import annotations

import errno
import signal

from .errors import FlowError, WorkerDiedError

_SIGNAL_HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory",
    "SIGHUP": "its terminal was closed: start it with nohup, or in tmux",
    "SIGTERM": "a job scheduler or container at its limit, or a user, ended it",
    "SIGSEGV": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGBUS": "a memory-mapped file was truncated, or /dev/shm or a disk is full",
    "SIGABRT": "native code aborted: a failed allocation or assertion, see the output above",
    "SIGILL": "native code built for another processor",
    "SIGFPE": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGXCPU": "the CPU time limit (ulimit -t)",
    "SIGXFSZ": "the file size limit (ulimit -f)",
}

_FORK_SERVER_GONE = 255  # multiprocessing's exit code for a worker whose fork server is gone and cannot report it

#: The exit status of a worker that had no memory left even to report its failure. 71 is EX_OSERR in sysexits.h, a
#: system error.
OUT_OF_MEMORY_STATUS = 71

#: The exceptions raised when memory has run out: the interpreter sometimes raises SystemError instead of MemoryError.
OUT_OF_MEMORY_ERRORS = (MemoryError, SystemError)

_SILENT_EXIT_HINT = "os._exit or sys.exit in the stage function, or in code that it calls"
_EXIT_HINT = f"{_SILENT_EXIT_HINT}; see the output above"
_LIMITS_REACHED = "processes (ulimit -u), open files (ulimit -n) or memory are used up"

_START_HINT = (
    "it failed before it reached its own code; see the output above. If that shows the main script being run again, "
    'put the code that starts the pipeline under: if __name__ == "__main__":'
)


def worker_died(stage: str, number: int, workers: int, pid: int, status: int | None, started: bool) -> WorkerDiedError:
    """Return the exception for a worker that ended with this `Process.exitcode` before finishing its work."""
    description, hint = _describe(status)
    if not started and status is not None and 0 < status != _FORK_SERVER_GONE:
        hint = _START_HINT
    return WorkerDiedError(
        f"stage {stage!r}: worker {number} of {workers} (pid {pid}) {description}{': ' if hint else ''}{hint}"
    )


def cannot_start(stage: str, number: int, workers: int, error: OSError | EOFError) -> FlowError:
    """Return the exception for a worker that could not be started, from the error that multiprocessing raised."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    remedy = f"{_LIMITS_REACHED}, or the fork server was killed; see the output above. Use fewer workers"
    if "path too long" in reason:
        remedy = "a socket has to be created in the folder for temporary files; set TMPDIR to a shorter path"
    return FlowError(f"stage {stage!r}: worker {number} of {workers} could not be started ({reason}): {remedy}")


def cannot_create_queues(error: OSError) -> FlowError:
    """Return the exception for a failure before the first worker starts: in the queues, or the resource tracker."""
    remedy = f"{_LIMITS_REACHED}. Use fewer workers"
    if error.errno in (errno.ENOSPC, errno.ENOENT, errno.ENOSYS):
        remedy = (
            "most likely /dev/shm is full or missing; free space there, or give the container more "
            "(docker run --shm-size=64m)"
        )
    return FlowError(f"cannot create the queues between processes ({error.strerror or error}): {remedy}")


def _describe(status: int | None) -> tuple[str, str]:
    if status is None:
        return "disappeared; other code in this process collected its exit status", ""
    if status == 0:
        return "exited with status 0 before finishing its work", _SILENT_EXIT_HINT
    if status == OUT_OF_MEMORY_STATUS:
        return "ran out of memory", "use fewer workers or smaller chunks, or add memory"
    if status == _FORK_SERVER_GONE:
        return (
            f"exited with status {status}",
            f"{_EXIT_HINT}. Or the fork server was killed: that gives the same status",
        )
    if status > 0:
        return f"exited with status {status}", _EXIT_HINT
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}", _SIGNAL_HINTS.get(name, "")
