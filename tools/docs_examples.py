"""An extension of griffe, which reads docstrings for the site: examples are shown as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

#: A doctest: from a prompt up to the next blank line or the end.
_EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


class Examples(Extension):
    """Puts fences around doctests."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of a module, class or function."""
        if obj.docstring:
            fenced = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = fenced
