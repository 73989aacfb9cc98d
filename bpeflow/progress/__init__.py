"""The progress of a run: the protocol, the live view and plain lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow.errors import ConfigError
from bpeflow.progress.observer import Observer

__all__ = ["Observer", "observer_for"]


@contextmanager
def observer_for(progress: bool, observer: Observer | None) -> Iterator[Observer | None]:
    """Yield the observer that a caller chose by `progress` and `observer`; None for neither.

    Raises `ConfigError` if both are given.
    """
    if not progress:
        yield observer
        return
    if observer is not None:
        raise ConfigError("progress and observer: give one of the two")
    from bpeflow.progress.terminal import drawing, library_console  # rich

    with drawing(library_console()) as drawn:
        yield drawn
