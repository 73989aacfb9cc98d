"""The exceptions of pipelines, and their messages for workers that died or could not be started.

An exception raised by a stage function is *not* wrapped in one of these. It reaches the caller unchanged; from a
process, with the worker's traceback as its cause.
"""

from __future__ import annotations

import signal


class FlowError(RuntimeError):
    """A pipeline was misused, or failed for a reason that no exception of the user's own code describes."""


class WorkerDiedError(FlowError):
    """A worker process ended before finishing its work: killed by a signal, by exiting, or out of memory."""


_SIGNAL_HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory",
    "SIGHUP": "its terminal was closed: start it with nohup, or in tmux",
    "SIGTERM": "a job scheduler or container at its limit, or a user, ended it",
    "SIGSEGV": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGBUS": "a memory-mapped file was truncated, or a disk is full",
    "SIGABRT": "native code aborted: a failed allocation or assertion, see the output above",
    "SIGILL": "native code built for another processor",
    "SIGFPE": "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where",
    "SIGXCPU": "the CPU time limit (ulimit -t)",
    "SIGXFSZ": "the file size limit (ulimit -f)",
}

_SILENT_EXIT_HINT = "os._exit or sys.exit in the stage function, or in code that it calls"
_EXIT_HINT = f"{_SILENT_EXIT_HINT}; see the output above"
_LIMITS_REACHED = "processes (ulimit -u), open files (ulimit -n) or memory are used up"


def worker_died(stage: str, number: int, workers: int, pid: int, status: int) -> WorkerDiedError:
    """Return the exception for a worker that exited with this exit code before finishing its work."""
    description, hint = _describe(status)
    return WorkerDiedError(
        f"stage {stage!r}: worker {number} of {workers} (pid {pid}) {description}{': ' if hint else ''}{hint}"
    )


def server_died() -> WorkerDiedError:
    """Return the exception for a fork server that was killed."""
    return WorkerDiedError(
        "the process that starts the workers (the fork server) was killed, so the workers were ended as well: "
        f"{_SIGNAL_HINTS['SIGKILL']}"
    )


def cannot_start(error: OSError) -> FlowError:
    """Return the exception for a failure to create the queues, the fork server or a worker."""
    return FlowError(
        f"cannot start the worker processes ({error.strerror or error}): {_LIMITS_REACHED}. Use fewer workers"
    )


def _describe(status: int) -> tuple[str, str]:
    if status == 0:
        return "exited with status 0 before finishing its work", _SILENT_EXIT_HINT
    if status > 0:
        return f"exited with status {status}", _EXIT_HINT
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}", _SIGNAL_HINTS.get(name, "")
