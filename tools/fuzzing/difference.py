"""Compare the results of native code and specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The result of `outcome` for an error.
REFUSED = "refused"

#: Characters to show of each part of a message: enough to see the case, which is in a file, and few enough to fit a
#: screen.
_MAX_SHOWN = 800


class DifferenceError(Exception):
    """Native code and specification give different results."""


def must_equal(case: str, native: object, specified: object) -> None:
    """Raise `DifferenceError` if the two results of a case differ."""
    if native != specified:
        parts = [_shorten(text) for text in (case, repr(native), repr(specified))]
        raise DifferenceError("{}\nnative:    {}\nspecified: {}".format(*parts))


def outcome(errors: tuple[type[Exception], ...], work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `work`, or `REFUSED` if it raises one of these errors."""
    try:
        return work(*arguments)
    except errors:
        return REFUSED


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} …"
