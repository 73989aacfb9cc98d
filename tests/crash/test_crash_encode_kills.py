"""Encodings of all layouts, killed at random over an earlier one: the old files or the new ones, never a mixture.

Most are resumed, and killed again.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import save_tokenizer

SCRIPT = Path(__file__).parents[1] / "support" / "killed_encodings.py"
TEXTS = [f"lower lowest the other {number} " * 20 for number in range(120)]
LAYOUTS: dict[str, dict[str, Any]] = {
    "text": {},
    "index": {"index": True},
    "split": {"val_fraction": 0.2, "index": True},
    "parts": {"shard_tokens": 9000},
    "parts of a split": {"shard_tokens": 9000, "val_fraction": 0.2, "index": True},
    "megatron": {"format": "megatron"},
    "parts for megatron": {"format": "megatron", "shard_tokens": 9000, "val_fraction": 0.2},
    "npy": {"format": "npy", "shard_tokens": 9000, "index": True},
}

#: Each layout with one form of input: the place in the corpus of a checkpoint depends only on the form, and what is cut
#: off from there on only on the layout. With both: the layout that has parts, a split and indexes.
CASES = [
    *(pytest.param(layout, ("text", "jsonl.gz")[number % 2]) for number, layout in enumerate(LAYOUTS)),
    pytest.param("parts of a split", "jsonl.gz"),
]


@pytest.mark.parametrize(("layout", "form"), CASES)
def test_killed_encodings_end_with_the_right_bytes(layout: str, form: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    path, earlier = tmp_path / f"input.{form}", tmp_path / "earlier.txt"
    if form == "text":
        path.write_text("<|endoftext|>".join(TEXTS), encoding="utf-8")
    else:
        path.write_bytes(gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()))
    earlier.write_text("<|endoftext|>".join(TEXTS[:30]), encoding="utf-8")
    same_name = [options for name, options in LAYOUTS.items() if (name == "npy") == (layout == "npy")]
    others = [LAYOUTS[layout], random.Random(seed).choice(same_name)]
    work = {
        "folder": str(tmp_path), "tokenizer": str(save_tokenizer(tmp_path / "tokenizer")), "seed": seed,
        "input": str(path), "options": LAYOUTS[layout], "earlier": str(earlier), "earlier_options": others[seed % 2],
    }  # fmt: skip
    done = subprocess.run([sys.executable, SCRIPT, json.dumps(work)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    print(summary)  # noqa: T201
    assert summary["kills"] >= 2
    assert summary["resumed"] >= 1
