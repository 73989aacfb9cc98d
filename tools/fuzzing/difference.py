"""What a target raises when native code and specification do not agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What `outcome` gives for an error.
REFUSED = "refused"


class Difference(Exception):  # noqa: N818  # a state of affairs
    """Native code and specification do not agree."""


def must_equal(what: str, native: object, specified: object) -> None:
    """Raise `Difference` where the two are not equal."""
    if native != specified:
        raise Difference(f"{what}\nnative:    {native!r}\nspecified: {specified!r}")


def outcome(errors: tuple[type[Exception], ...], work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns; `REFUSED` if it raises one of these errors."""
    try:
        return work(*arguments)
    except errors:
        return REFUSED
