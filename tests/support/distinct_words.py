"""A small corpus in which most words are rare."""

from __future__ import annotations

import random
from pathlib import Path


def distinct_words(seed: int, number: int) -> str:
    choose = random.Random(seed)
    words = ["low", "lower", "naïve", "日本語", *(f"w{choose.randrange(10**6)}" for _ in range(number // 2))]
    return " ".join(choose.choices(words, k=number))


def write_corpus(folder: Path) -> Path:
    """Create a folder with three files of documents, one of them empty, of 20 kB in total."""
    folder.mkdir()
    for name, number in (("a", 700), ("b", 0), ("c", 1500)):
        documents = [distinct_words(seed, number // 10) for seed in range(10)] if number else []
        (folder / name).write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return folder
