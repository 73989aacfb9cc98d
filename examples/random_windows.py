"""Random windows of token files for training in PyTorch, as nanoGPT takes them: from one file or a set of shards.

    bpeflow encode --tokenizer runs/mine --input corpus/ --out train.bin --shard_tokens 100m --val_fraction 0.005
    python examples/random_windows.py train.bin val.bin

`RandomWindows` needs numpy only. `get_batch` makes tensors of its windows, and `main` shows the loop with a model that
predicts each token from the one before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bpeflow


class RandomWindows:
    """Draws windows of consecutive ids. Every position in the files is equally likely.

    The files are memory-mapped, so only the pages of the windows are read. Make the object in the process that uses it:
    pickling it would copy the files.

    Args:
        path: a token file in any format, or the name of a set of shards (``train.bin`` for ``train_000000.bin`` …).
        length: the length of a window.
        seed: a number that differs between processes, such as the rank.
    """

    def __init__(self, path: str | Path, length: int, seed: int = 0) -> None:
        self.length = length
        self.shards = [shard for shard in bpeflow.load_shards(path) if len(shard) >= length]
        if not self.shards:
            raise ValueError(f"{path}: no file has {length} tokens")
        self._ends = np.cumsum([len(shard) - length + 1 for shard in self.shards])  # of the positions in each
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> NDArray[np.int64]:
        """Return windows, one per row, as int64, which PyTorch's embeddings take."""
        positions = self._random.integers(self._ends[-1], size=count)
        numbers = np.searchsorted(self._ends, positions, "right")
        rows = np.empty((count, self.length), np.int64)
        for row, number, position in zip(rows, numbers, positions, strict=True):
            start = position - (self._ends[number - 1] if number else 0)
            row[:] = self.shards[number][start : start + self.length]
        return rows


def get_batch(windows: RandomWindows, batch_size: int, device: str = "cpu") -> tuple[Any, Any]:
    """Return the inputs and the targets of a batch. Targets are the inputs shifted by one."""
    import torch

    rows = torch.from_numpy(windows.draw(batch_size))
    if device.startswith("cuda"):  # pinned memory is copied while the device computes
        rows = rows.pin_memory().to(device, non_blocking=True)
    return rows[:, :-1], rows[:, 1:]


def main() -> None:
    """Train a small model."""
    parser = argparse.ArgumentParser(description="Train a model that predicts each token from the one before.")
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    import torch

    splits = {name: RandomWindows(getattr(options, name), options.context + 1) for name in ("train", "val")}
    vocab_size = 1 + max(int(shard.max()) for split in splits.values() for shard in split.shards)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(vocab_size, 64), torch.nn.Linear(64, vocab_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss_of(split: str) -> Any:
        inputs, targets = get_batch(splits[split], options.batch_size)
        return torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    for step in range(options.steps + 1):
        if step % 100 == 0:
            with torch.no_grad():
                print(f"step {step}: train {loss_of('train'):.3f}, val {loss_of('val'):.3f}")
        optimizer.zero_grad()
        loss_of("train").backward()
        optimizer.step()


if __name__ == "__main__":
    main()
