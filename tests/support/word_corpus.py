"""A corpus with many distinct words."""

from __future__ import annotations

import random
from pathlib import Path


def write_words(folder: Path) -> Path:
    """Write three files of text, one of them empty, about 300 kB in all. Returns the folder."""
    folder.mkdir()
    choose = random.Random(7)
    words = ["".join(choose.choices("abcdeé日", k=choose.randrange(1, 8))) for _ in range(9000)]
    for name, size in (("a", 9000), ("b", 0), ("c", 30_000)):
        text = " ".join(choose.choices(words, k=size))
        (folder / name).write_text(text.replace("aa", "<|endoftext|>"), encoding="utf-8")
    return folder
