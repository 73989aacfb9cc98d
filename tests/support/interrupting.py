"""A function that a run calls several times, of which one call is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def interrupting(original: Callable[..., Any], at: int, end: type[BaseException]) -> Callable[..., Any]:
    """Return a function that does what another one does, but raises `end` in the call with this number, from 1."""
    calls = 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise end
        return original(*arguments, **named)

    return interrupted
