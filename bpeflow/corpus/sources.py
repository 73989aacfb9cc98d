"""Sources: the parts that a corpus is mixed from."""

from __future__ import annotations

from dataclasses import dataclass

from bpeflow.corpus.sample import Sample


@dataclass(frozen=True, slots=True)
class Source:
    """What there is to know of a source when its files have been found.

    Attributes:
        name: as it is reported.
        weight: how often each of its documents counts.
        sample: which of its documents to take; None for all.
        text_field: for JSON Lines, the way to the text.
        text_column: for Parquet, the way to the text.
    """

    name: str = "input"
    weight: int = 1
    sample: Sample | None = None
    text_field: tuple[str, ...] = ("text",)
    text_column: tuple[str, ...] = ("text",)
