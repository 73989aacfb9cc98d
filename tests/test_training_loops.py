"""The recipe for training loops draws the windows that it should, and the page about it is right."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from small_tokenizer import save_tokenizer

import bpeflow

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tokenizer(tmp_path: Path) -> bpeflow.Tokenizer:
    return bpeflow.Tokenizer.load(save_tokenizer(tmp_path / "tokenizer"))


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, "random_windows", raising=False)
    import random_windows

    return random_windows


@pytest.fixture
def folder(tokenizer: bpeflow.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a set of shards, `train.bin`, and go to its folder."""
    monkeypatch.chdir(tmp_path)
    texts = [f"the {number} cats" for number in range(20)]
    tokenizer.encode_documents(texts, "train.bin", shard_tokens=30, val_fraction=0.4, seed=2)
    return tmp_path


def test_every_window_of_every_shard_is_equally_likely(recipe: ModuleType, folder: Path) -> None:
    shards = bpeflow.load_shards("train.bin")
    assert len(shards) > 1
    windows = sorted(tuple(shard[i : i + 12].tolist()) for shard in shards for i in range(len(shard) - 11))
    drawn = recipe.RandomWindows(folder / "train.bin", 12, seed=1).draw(200 * len(windows))
    assert (drawn.dtype, drawn.shape) == (np.int64, (200 * len(windows), 12))
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert [tuple(row) for row in found.tolist()] == sorted(set(windows))
    assert len(set(windows)) == len(windows)
    assert 130 < counts.min() <= counts.max() < 280
    again = recipe.RandomWindows("train.bin", 12, seed=1).draw(200 * len(windows))
    assert (drawn == again).all()


def test_shards_shorter_than_a_window_are_left_out(recipe: ModuleType, folder: Path) -> None:
    shards = bpeflow.load_shards("train.bin")
    longest = max(map(len, shards))
    windows = recipe.RandomWindows("train.bin", longest)
    assert {tuple(row) for row in windows.draw(50).tolist()} == {tuple(s.tolist()) for s in shards if len(s) == longest}
    with pytest.raises(ValueError, match=f"train.bin: no file has {longest + 1} tokens"):
        recipe.RandomWindows("train.bin", longest + 1)


def test_batches_for_pytorch(recipe: ModuleType, folder: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    inputs, targets = recipe.get_batch(recipe.RandomWindows("train.bin", 6), 5)
    assert (inputs.dtype, inputs.shape, targets.shape) == (torch.int64, (5, 5), (5, 5))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


@pytest.mark.slow
def test_the_recipe_trains(
    recipe: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    flags = ["--context", "8", "--batch_size", "4", "--steps", "100"]
    monkeypatch.setattr(sys, "argv", ["random_windows.py", "train.bin", "val.bin", *flags])
    recipe.main()
    first, last = (
        float(loss) for loss in re.findall(r"step .*: train ([0-9.]+), val [0-9.]+", capsys.readouterr().out)
    )
    assert last < first / 2


def blocks_of_the_page() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/training_loops.md").read_text("utf-8"), re.M | re.S)


def test_the_python_of_the_page_runs(
    recipe: ModuleType, tokenizer: bpeflow.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, *_ = blocks_of_the_page()
    monkeypatch.chdir(tmp_path)
    tokenizer.encode_documents(["the cats "] * 200, "train.bin", index=True)
    try:
        import torch  # noqa: F401
    except ImportError:
        script = script.replace("inputs, targets = get_batch(train, batch_size=12)", "train.draw(12)")
    exec(script, {})
    assert np.searchsorted(bpeflow.load_document_offsets("train.bin"), 15, "right") - 1 > 0


def test_the_recipes_for_batches_work(
    tokenizer: bpeflow.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, arrays, for_torch, for_datasets, for_ray = blocks_of_the_page()
    monkeypatch.chdir(tmp_path)
    tokenizer.save("runs/mine")
    names: dict[str, Any] = {}
    exec(arrays, names)
    texts = ["the cats", "the 7 cats sat"]
    assert names["matrix"].shape == (2, 16)
    assert names["matrix"][1, : names["lengths"][1]].tolist() == tokenizer.encode(texts[1])
    exec(for_datasets, names)
    assert [row.tolist() for row in names["tokenize"]({"text": texts})["input_ids"]] == tokenizer.encode_batch(texts)
    exec(for_ray, names)
    block = names["tokenize_block"]({"text": np.array(texts, object)})  # as Ray gives columns
    assert (block["input_ids"].shape, block["length"].tolist()) == (
        (2, 1024),
        [*map(len, tokenizer.encode_batch(texts))],
    )
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    exec(for_torch, names)
    assert torch.equal(names["attention_mask"].sum(1), torch.from_numpy(names["lengths"]))
