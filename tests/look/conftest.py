"""Finished runs to write pages about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bpeflow

TEXT = "The other theory, there and then: low lower lowest <b>&amp; more</b>\n naïve 東京 №1<|endoftext|>"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(TEXT * 60 + "".join(f"word{number} <b>&amp;" for number in range(300)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with samples of the monitor."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    monitor = {"enabled": True, "interval": 0.01}
    bpeflow.train({"input": str(corpus), "vocab_size": 320, "out_dir": str(folder), "monitor": monitor})
    samples = folder / "monitor.jsonl"  # it may have been too fast for several
    last = json.loads(samples.read_text(encoding="utf-8").splitlines()[-1])
    samples.write_text(
        "".join(json.dumps(last | {"elapsed": time}) + "\n" for time in (0.1, 0.2, 0.1)), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="session")
def other_run(corpus: Path, run: Path) -> Path:
    """Return the folder of a run of several sources, without a monitor."""
    folder = run.with_name("other")
    sources = [{"name": "prose", "paths": str(corpus)}, {"name": "again", "paths": str(corpus), "weight": 2}]
    bpeflow.train({"sources": sources, "vocab_size": 300, "pattern": "o200k", "out_dir": str(folder)})
    return folder
