"""The exceptions of pipelines.

An exception raised by a stage function is *not* wrapped in one of these. It reaches the caller unchanged; from a
process, with the worker's traceback as its cause.
"""


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
