"""The progress of a run: the protocol, the live view and plain lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bpeflow._util.text import short_repr
from bpeflow.errors import ConfigError, InputTypeError
from bpeflow.progress.observer import Observer

__all__ = ["Observer", "observer_for"]


@contextmanager
def observer_for(progress: bool, observer: Observer | None) -> Iterator[Observer]:
    """Yield the observer that a caller chose by `progress` and `observer`; for neither, one that ignores all.

    Raises `ConfigError` if both are given, and `InputTypeError` for an observer of another type.
    """
    if not isinstance(observer, Observer | None):
        raise InputTypeError(f"observer is {short_repr(observer)}; it must be a bpeflow.Observer")
    if not progress:
        yield observer or Observer()
        return
    if observer is not None:
        raise ConfigError("progress and observer: give one of the two")
    from bpeflow.progress.terminal import drawing, library_console  # rich

    with drawing(library_console()) as drawn:
        yield drawn
