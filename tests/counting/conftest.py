"""The default corpus of tests in this folder."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

WORDS = ["low", "lower", "newest", "widest", "naïve", "日本語", "it's", "42", "...", "\n\n", "\t", "x" * 300]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write five files of random documents, two of them empty, about 60 kB in all."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    for name, documents in (("a", 30), ("b", 0), ("c", 80), ("d", 1), ("e", 0)):
        texts = [" ".join(choose.choices(WORDS, k=choose.randrange(60))) for _ in range(documents)]
        (folder / name).write_text("<|endoftext|>".join(texts), encoding="utf-8")
    return folder
