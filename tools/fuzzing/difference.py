"""What a target raises when native code and specification do not agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What `outcome` gives for an error.
REFUSED = "refused"

#: Characters of a message's parts.
_SHOWN = 800


class Difference(Exception):  # a state of affairs
    """Native code and specification do not agree."""


def must_equal(what: str, native: object, specified: object) -> None:
    """Raise `Difference` where the two are not equal."""
    if native != specified:
        shown = [_short(text) for text in (what, repr(native), repr(specified))]
        raise Difference("{}\nnative:    {}\nspecified: {}".format(*shown))


def outcome(errors: tuple[type[Exception], ...], work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns; `REFUSED` if it raises one of these errors."""
    try:
        return work(*arguments)
    except errors:
        return REFUSED


def _short(text: str) -> str:
    """What fits a screen: the input is in a file."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
