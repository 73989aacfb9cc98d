"""A small corpus, and a config that trains on it."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = "low lower lowest newest widest<|endoftext|>the lower the better, they said<|endoftext|>" * 20


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path, corpus: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(f"input: {corpus}\nvocab_size: 280\nout_dir: {tmp_path / 'run'}\n", encoding="utf-8")
    return path
