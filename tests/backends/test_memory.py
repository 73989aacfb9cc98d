"""The estimate of the memory that learning takes is near the memory that it takes."""

from __future__ import annotations

import numpy as np
import pytest

from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.backends.memory import memory_needed
from bpeflow.counting.counts import PretokenCounts


@pytest.mark.parametrize("vocab_size", [1_000, 66_000])
def test_the_estimate_is_within_a_quarter_of_the_peak(backend: MergeBackend, vocab_size: int) -> None:
    """A million positions, with counts as in text, and ids of 2 and of 4 bytes."""
    if backend.name == "python":
        pytest.skip("the estimate is for native backends")
    random = np.random.default_rng(1)
    letters = np.frombuffer(b"etaoinshrdlcumwfgypbvk", dtype=np.uint8)
    weights = 1 / np.arange(1, len(letters) + 1)
    offsets = np.concatenate([[0], np.cumsum(random.integers(1, 15, size=130_000))])
    data = random.choice(letters, size=offsets[-1], p=weights / weights.sum())
    counts = PretokenCounts(data, offsets, 1 + 10_000_000 // np.arange(1, len(offsets)))
    tokens = tuple(bytes([byte]) for byte in range(256))
    task = MergeTask(counts, tokens, tuple(range(256)), vocab_size, min_frequency=200, threads=1)
    with backend.start(task) as session:
        session.step(100)
        peak = session.statistics().memory_bytes + data.nbytes + offsets.nbytes + counts.counts.nbytes
    estimate = memory_needed(len(counts), len(data), vocab_size)
    assert 0.75 < estimate / peak < 1.25
