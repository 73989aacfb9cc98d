"""`Described`: results that are shown as labelled lines, without rich, which takes time to import."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape


class Described:
    """A result that `print` and notebooks show as the command line does."""

    def describe(self) -> Iterator[tuple[str, str]]:
        """Yield labelled lines. One without a label belongs to the line before it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(f"{label:<9}{text}".rstrip() for label, text in self.describe())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
