"""Resuming: however a run ends, the next one goes on with it to the same bytes, or says why it cannot."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest


def distinct_words(seed: int, number: int) -> str:
    choose = random.Random(seed)
    words = ["low", "lower", "naïve", "日本語", *(f"w{choose.randrange(10**6)}" for _ in range(number // 2))]
    return " ".join(choose.choices(words, k=number))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files of documents, one of them empty; 20 kB."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, number in (("a", 700), ("b", 0), ("c", 1500)):
        documents = [distinct_words(seed, number // 10) for seed in range(10)] if number else []
        (folder / name).write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return folder


@pytest.mark.parametrize("tie_break", ["greatest_bytes", "huggingface"])
def test_a_run_that_is_killed_at_any_step_goes_on_to_the_same_bytes(
    corpus: Path, tmp_path: Path, tie_break: str
) -> None:
    seed = random.randrange(2**32)
    settings = {
        "input": str(corpus), "vocab_size": 330, "backend": "python", "num_counter": 1, "segment_size": "6kb",
        "chunk_size": "2kb", "out_dir": str(tmp_path / "runs"), "tie_break": tie_break,
    }  # fmt: skip
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_runs.py")), json.dumps(settings), str(seed)],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr[-3000:]}"
    told = json.loads(done.stdout)
    assert told["steps"] > 40
    assert told["refused"] > 3
