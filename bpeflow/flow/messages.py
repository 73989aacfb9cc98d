"""The last message of a worker: a report of its work, or the exception that ended it."""

from __future__ import annotations

import pickle
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from .errors import FlowError


@dataclass(frozen=True)
class WorkerReport:
    """From a worker, at its normal end: its totals and the resources that it used.

    Attributes:
        stage: Name of the worker's stage.
        worker: Number of the worker within its stage, from 0.
        items_in: Items taken.
        items_out: Items put.
        wall_seconds: Elapsed time of the worker.
        cpu_seconds: CPU time of its process, or of its thread.
        weight_done: Total weight of the inputs, as given by `Stage.weigh`.
        peak_memory: Peak resident memory of its process, in bytes.
    """

    stage: str
    worker: int
    items_in: int
    items_out: int
    wall_seconds: float
    cpu_seconds: float
    weight_done: int
    peak_memory: int


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


@dataclass(frozen=True)
class Failure:
    """From a worker whose stage function raised: the exception if it can be pickled, and the traceback as text.

    The exception is pickled separately, so the message arrives even if the exception cannot be pickled or loaded.
    """

    stage: str
    worker: int
    pickled: bytes | None
    summary: str
    traceback: str

    @classmethod
    def from_exception(cls, stage: str, worker: int, error: BaseException) -> Failure:
        """Describe an exception that is being handled."""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        return cls(stage, worker, _pickle_exception(error), summary, traceback.format_exc())

    def to_exception(self) -> BaseException:
        """Return the original exception, or a FlowError with its type and text; its cause is the worker's traceback."""
        error = _unpickle_exception(self.pickled)
        if error is None:
            error = FlowError(
                f"stage {self.stage!r}, worker {self.worker}, raised {self.summary} "
                "(this exception cannot be pickled; its traceback is above)"
            )
        error.__cause__ = WorkerTracebackError(self.traceback, self.stage, self.worker)
        return error


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


def _pickle_exception(error: BaseException) -> bytes | None:
    """Pickle an exception if it survives the round trip. One with an unusual `__init__` fails only when loaded."""
    try:
        pickled = pickle.dumps(error)
    except Exception:
        return None
    return pickled if type(_unpickle_exception(pickled)) is type(error) else None


def _unpickle_exception(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error = pickle.loads(pickled)  # noqa: S301 -- from our own worker
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
