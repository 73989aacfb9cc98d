"""A corpus, and an engine that the tests of a module share, as starting processes takes most of their time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bpeflow.config import EngineSettings
from bpeflow.engines.local import ProcessEngine


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessEngine]:
    """Two processes."""
    engine = ProcessEngine(EngineSettings(kind="processes", workers=2))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three files of text with many distinct words, about 300 kB in all."""
    folder = tmp_path_factory.mktemp("data") / "corpus"
    folder.mkdir()
    choose = random.Random(7)
    words = ["".join(choose.choices("abcdeé日", k=choose.randrange(1, 8))) for _ in range(9000)]
    for name, size in (("a", 9000), ("b", 0), ("c", 30_000)):
        text = " ".join(choose.choices(words, k=size))
        (folder / name).write_text(text.replace("aa", "<|endoftext|>"), encoding="utf-8")
    return folder
