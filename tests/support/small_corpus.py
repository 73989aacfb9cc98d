"""A small text, as a file."""

from __future__ import annotations

from pathlib import Path

TEXT = "low lower lowest newest widest<|endoftext|>the lower the better, they said<|endoftext|>" * 20


def write_text(folder: Path, text: str = TEXT) -> Path:
    path = folder / "corpus.txt"
    path.write_text(text, encoding="utf-8")
    return path
