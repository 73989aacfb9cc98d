"""Which backends there are, and which one a run gets."""

from __future__ import annotations

from bpeflow.backends.base import MergeBackend
from bpeflow.backends.native import OMP, C
from bpeflow.backends.python import PythonBackend
from bpeflow.errors import BackendUnavailableError

#: Best first: ``auto`` takes the first that is available.
BACKENDS: tuple[MergeBackend, ...] = (OMP, C, PythonBackend())


def choose_backend(name: str) -> MergeBackend:
    """Return the backend of that name, or for ``auto`` the best that is available.

    A backend that was asked for by name is never replaced by another. Raises `BackendUnavailableError` with its reason and
    what there is instead.
    """
    if name == "auto":
        return next(backend for backend in BACKENDS if backend.unavailable() is None)
    for backend in BACKENDS:
        if backend.name == name:
            reason = backend.unavailable()
            if reason is None:
                return backend
            others = [other.name for other in BACKENDS if other.unavailable() is None]
            raise BackendUnavailableError(
                f"backend {name} is not available: {reason}. Available here: {', '.join(others)} (or backend: auto)"
            )
    raise BackendUnavailableError(f"unknown backend {name!r}; there are: {', '.join(b.name for b in BACKENDS)}, auto")
