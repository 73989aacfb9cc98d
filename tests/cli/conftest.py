"""A small corpus, and a config that trains on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_corpus import write_text


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_text(tmp_path)


@pytest.fixture
def config(tmp_path: Path, corpus: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(f"input: {corpus}\nvocab_size: 280\nout_dir: {tmp_path / 'run'}\n", encoding="utf-8")
    return path
