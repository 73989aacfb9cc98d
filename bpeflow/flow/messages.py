"""What travels between the processes of a pipeline besides the items themselves."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from .errors import FlowError


@dataclass(frozen=True)
class Stop:
    """To a consumer, on its queue: every item has come, nothing follows."""


@dataclass(frozen=True)
class WorkerReport:
    """From a worker, at its normal end: what it did and what it took.

    ``wall_seconds`` and ``cpu_seconds`` are those of the worker's process; in inline mode those spent in the stage
    itself, without the stages before it. ``weight_done`` is the weight of its inputs by ``Stage.weigh``;
    ``peak_memory`` is the process' largest resident memory in bytes.
    """

    stage: str
    worker: int
    items_in: int
    items_out: int
    wall_seconds: float
    cpu_seconds: float
    weight_done: int
    peak_memory: int


@dataclass(frozen=True)
class Failure:
    """From a worker, when its stage function raised: the exception as far as it can travel, and the traceback as text.

    The exception is pickled apart from the message, so that the message arrives whatever the exception does.
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
                "(an exception that cannot be pickled; its traceback is above)"
            )
        error.__cause__ = RemoteTraceback(self.traceback, self.stage, self.worker)
        return error


class RemoteTraceback(Exception):
    """Shows a worker's traceback as the cause of the exception that came from there.

    Attributes:
        stage, worker: whose it is.
    """

    def __init__(self, text: str, stage: str, worker: int) -> None:
        super().__init__(text, stage, worker)
        self.stage = stage
        self.worker = worker

    def __str__(self) -> str:
        """Return the worker's traceback, set off by quotes from the caller's own."""
        return f'in stage {self.stage!r}, worker {self.worker}:\n"""\n{self.args[0]}"""'


def _pickle_exception(error: BaseException) -> bytes | None:
    """Pickle an exception if it survives the round trip: one with an unusual ``__init__`` fails only on loading."""
    try:
        pickled = pickle.dumps(error)
    except Exception:
        return None
    return pickled if type(_unpickle_exception(pickled)) is type(error) else None


def _unpickle_exception(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error = pickle.loads(pickled)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
