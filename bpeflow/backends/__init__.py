"""The merge backends: the contract, the specification in Python, the native ones."""

from __future__ import annotations

from bpeflow._util.text import unknown_name
from bpeflow.backends.base import MergeBackend
from bpeflow.backends.native_backend import OMP, C
from bpeflow.backends.python_backend import PythonBackend
from bpeflow.errors import BackendUnavailableError, ConfigError

#: Best first: ``auto`` selects the first one that is available.
BACKENDS: tuple[MergeBackend, ...] = (OMP, C, PythonBackend())


def choose_backend(name: str) -> MergeBackend:
    """Return the backend with this name, or the best available one for ``auto``.

    A backend that is requested by name is never replaced by another.

    Raises:
        BackendUnavailableError: the backend is unavailable. The message has the reason and the alternatives.
        ConfigError: the name is unknown.
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
                f"backend {name} is not available: {reason}. Available here: {', '.join(others)} (or backend='auto')"
            )
    raise ConfigError(unknown_name("backend", name, ("auto", *(backend.name for backend in BACKENDS))))
