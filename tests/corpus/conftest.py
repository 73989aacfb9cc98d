"""Random documents with words of many kinds, and their counts."""

from __future__ import annotations

import random

import pytest
from corpus_forms import write
from counted import count

from bpeflow.counting.count import CorpusCounts

WORDS = ["low", "lower", "newest", "naïve", "日本語", "it's", "42", "...", "\n\n", "\t", "<|end", "\u2028", "\x00"]


@pytest.fixture(scope="session")
def documents() -> list[str]:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=choose.choice([0, 1, 5, 300]))) for _ in range(400)]


@pytest.fixture(scope="session")
def expected(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> CorpusCounts:
    return count(str(write(tmp_path_factory.mktemp("expected") / "corpus.txt", documents)))
