"""What can go wrong in a pipeline, as types of our own.

An exception that a stage function raises is *not* wrapped in any of these: it reaches the caller as itself, with the
worker's traceback as its cause.
"""

from __future__ import annotations


class FlowError(RuntimeError):
    """A pipeline was misused, or failed in a way that no exception of the user's own describes."""


class WorkerDiedError(FlowError):
    """A worker process ended without finishing its work: a signal, an exit status, out of memory."""
