"""Real text and published vocabularies for tests."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import pytest

_VARIABLE = "BPEFLOW_TEST_DATA"
_FOLDER = Path(os.environ.get(_VARIABLE, Path(__file__).parents[3] / "shared" / "data"))


def real_data(name: str) -> Path:
    """Return the path of a file of real data. Skip the test if it is missing."""
    path = _FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is missing (set {_VARIABLE} to use another folder)")
    return path


def real_text(name: str) -> bytes:
    """Return the text of a corpus, for example `c4_2MB`."""
    return lzma.decompress(real_data(f"corpora/{name}.txt.xz").read_bytes())


def real_text_start(name: str, size: int) -> str:
    """Return the first characters of a corpus: `size` bytes, or a few less to end at a character."""
    with lzma.open(real_data(f"corpora/{name}.txt.xz")) as file:
        return file.read(size).decode("utf-8", "ignore")
