"""The exceptions of pipelines, their messages for dead workers, and how an exception gets out of a worker process.

An exception raised by a stage function is *not* wrapped in one of these. It reaches the caller unchanged; from a
process, with the worker's traceback as its cause.
"""

from __future__ import annotations

import pickle
import signal
import traceback
from contextlib import suppress


class FlowError(RuntimeError):
    """A pipeline was misused, or failed for a reason that no exception of the user's own code describes."""


class WorkerDiedError(FlowError):
    """A worker process ended before finishing its work: killed by a signal, by exiting, or out of memory."""


class WorkerTracebackError(Exception):
    """The worker's traceback, shown as the cause of an exception that a worker raised.

    Attributes:
        stage: Name of the worker's stage.
        worker: Number of the worker within its stage, from 0.
    """

    def __init__(self, text: str, stage: str, worker: int) -> None:
        super().__init__(text, stage, worker)
        self.stage = stage
        self.worker = worker

    def __str__(self) -> str:
        """Return the worker's traceback in triple quotes, which separate it from the caller's own."""
        return f'in stage {self.stage!r}, worker {self.worker}:\n"""\n{self.args[0]}"""'


def pack_failure(stage: str, worker: int, error: BaseException) -> bytes:
    """Pickle an exception that a worker handles, its traceback, and what replaces it if it cannot be pickled."""
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    pickled = b""
    with suppress(Exception):
        pickled = pickle.dumps(error)
    replacement = FlowError(
        f"stage {stage!r}, worker {worker}, raised {summary} (this exception cannot be pickled; its traceback is above)"
    )
    return pickle.dumps((pickled, replacement, WorkerTracebackError(traceback.format_exc(), stage, worker)))


def unpack_failure(packed: bytes, otherwise: BaseException) -> BaseException:
    """Return a packed exception, whose cause is the worker's traceback; or another if `packed` is only a part of it."""
    try:
        pickled, error, cause = pickle.loads(packed)  # noqa: S301 -- from our own worker
    except (EOFError, pickle.UnpicklingError):
        return otherwise
    with suppress(Exception):  # one with an unusual `__init__` cannot be loaded
        error = pickle.loads(pickled)  # noqa: S301
    error.__cause__ = cause
    return error  # type: ignore[no-any-return]


_CRASHED = "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where"
_SIGNAL_HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory",
    "SIGHUP": "its terminal was closed: start it with nohup, or in tmux",
    "SIGTERM": "a job scheduler or container at its limit, or a user, ended it",
    "SIGSEGV": _CRASHED,
    "SIGBUS": "a memory-mapped file was truncated, or a disk is full",
    "SIGABRT": "native code aborted: a failed allocation or assertion, see the output above",
    "SIGILL": "native code built for another processor",
    "SIGFPE": _CRASHED,
    "SIGXCPU": "the CPU time limit (ulimit -t)",
    "SIGXFSZ": "the file size limit (ulimit -f)",
}
_EXIT_HINT = "os._exit or sys.exit in the stage function, or in code that it calls; see the output above"


def worker_died(stage: str, number: int, workers: int, pid: int, status: int) -> WorkerDiedError:
    """Return the exception for a worker that exited with this exit code before finishing its work."""
    if status >= 0:
        description, hint = f"exited with status {status}{'' if status else ' before finishing its work'}", _EXIT_HINT
    else:
        name = signal.Signals(-status).name if -status in {*signal.Signals} else f"signal {-status}"
        description, hint = f"was killed by {name}", _SIGNAL_HINTS.get(name, "")
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
        f"cannot start the worker processes ({error.strerror or error}): processes (ulimit -u), open files (ulimit -n) "
        "or memory are used up. Use fewer workers"
    )
