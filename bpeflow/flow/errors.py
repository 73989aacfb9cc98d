"""The exceptions of pipelines.

An exception raised by a stage function is *not* wrapped in one of these. It reaches the caller unchanged; from a
process, with the worker's traceback as its cause.
"""

from __future__ import annotations

import signal


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

    def __init__(self, stage: str, worker: int, text: str) -> None:
        super().__init__(f'in stage {stage!r}, worker {worker}:\n"""\n{text}"""')
        self.stage = stage
        self.worker = worker


#: The likely cause of SIGKILL.
KILLED = "most likely the kernel's out-of-memory killer: use fewer workers or smaller chunks, or add memory"
_CRASHED = "a crash in native code: PYTHONFAULTHANDLER=1 in the environment shows where"
_EXITED = "os._exit or sys.exit in the stage function, or in code that it calls; see the output above"
_HINTS = {"SIGKILL": KILLED, **dict.fromkeys(("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE"), _CRASHED)}


def worker_died(stage: str, number: int, workers: int, pid: int, status: int) -> WorkerDiedError:
    """Return the exception for a worker that exited with this exit code before finishing its work."""
    if status >= 0:
        description, hint = f"exited with status {status}{'' if status else ' before finishing its work'}", _EXITED
    else:
        name = signal.Signals(-status).name if -status in {*signal.Signals} else f"signal {-status}"
        description, hint = f"was killed by {name}", _HINTS.get(name, "")
    return WorkerDiedError(
        f"stage {stage!r}: worker {number} of {workers} (pid {pid}) {description}{': ' if hint else ''}{hint}"
    )


def cannot_start(error: OSError) -> FlowError:
    """Return the exception for a failure to create the queues, the fork server or a worker."""
    return FlowError(
        f"cannot start the worker processes ({error.strerror or error}): processes (ulimit -u), open files (ulimit -n) "
        "or memory are used up. Use fewer workers"
    )
