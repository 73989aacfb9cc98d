"""A merge step that will not fit into memory is announced before it begins, and that changes nothing.

The estimate of the memory that learning takes is near the memory that it takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow._util.text import format_size
from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.counting.counts import PretokenCounts
from bpeflow.training import learn as forecasting
from bpeflow.training.learn import memory_needed, warn_of_need

COUNTS = PretokenCounts.from_mapping({b"word %d" % number: 1 + number % 9 for number in range(1000)})
WORDS, POSITIONS = len(COUNTS), len(COUNTS.data)


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the memory that is available."""
    return lambda size: monkeypatch.setattr(forecasting, "available_memory", lambda: size)


@pytest.mark.parametrize("missing", [0, 1])
def test_what_fits_beside_the_counts_is_not_mentioned(
    missing: int, caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    available(memory_needed(WORDS, POSITIONS, 256, 32000) - 16 * WORDS - POSITIONS - missing)
    warn_of_need(COUNTS, 256, 32000)
    assert len(caplog.records) == missing


def test_the_warning_names_the_estimate_and_the_remedies(
    caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    available(10_000)
    warn_of_need(COUNTS, 256, 32000)
    needed = format_size(memory_needed(WORDS, POSITIONS, 256, 32000))
    message = caplog.records[0].getMessage()
    assert "may run out of memory, of which 10.0 kB are available: 1,000 distinct pre-tokens of 7.9 kB" in message
    assert f"about {needed} with" in message
    for remedy in ("thin_rare={'below': 5, 'keep': 0.1}", "max_bytes of a source", "resume=True", "bpeflow merge"):
        assert remedy in message


def test_a_run_is_warned_before_it_learns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    """Its results are those of a run that is not warned; with `thin_rare` what is left counts."""
    values = {"input": str(write_corpus(tmp_path / "corpus")), "vocab_size": 300}
    caplog.set_level(logging.WARNING)
    bpeflow.train({**values, "out_dir": tmp_path / "quiet"})
    available(1000)
    bpeflow.train({**values, "out_dir": tmp_path / "counted", "skip_merge": True})
    assert not caplog.records
    bpeflow.train({**values, "out_dir": tmp_path / "warned"})
    counts = PretokenCounts.load(tmp_path / "warned" / "counts.npz")
    for name in ("counts.npz", "vocab.json", "merges.txt"):
        assert (tmp_path / "warned" / name).read_bytes() == (tmp_path / "quiet" / name).read_bytes()
    bpeflow.train({**values, "thin_rare": "below=5,keep=0.1"})
    whole, thinned = (record.getMessage() for record in caplog.records)
    assert f"{len(counts):,} distinct pre-tokens" in whole
    assert f"{len(counts.thin(5, 0.1)):,} distinct pre-tokens" in thinned


def test_the_estimate_is_within_a_quarter_of_the_peak(backend: MergeBackend) -> None:
    """Words of one to four syllables, which are as frequent as words and syllables are in text."""
    if backend.name == "python":
        pytest.skip("the estimate is for native backends")
    random = np.random.default_rng(1)
    letters = np.frombuffer(b"etaoinshrdlcumwfgypbvk", dtype=np.uint8)
    syllables = [bytes(random.choice(letters, size=length)) for length in random.integers(2, 6, size=5000)]
    weights = 1 / np.arange(1, len(syllables) + 1)
    chosen = random.choice(len(syllables), size=(300_000, 4), p=weights / weights.sum()).tolist()
    words = dict.fromkeys(
        b"".join(map(syllables.__getitem__, numbers[:length]))
        for numbers, length in zip(chosen, random.integers(1, 5, size=len(chosen)).tolist(), strict=True)
    )
    counts = PretokenCounts.from_mapping({word: 1 + 10_000_000 // (rank + 1) for rank, word in enumerate(words)})

    tokens = tuple(bytes([byte]) for byte in range(256))
    task = MergeTask(counts, tokens, tuple(range(256)), max_tokens=1000, min_frequency=200, threads=1)
    with backend.start(task) as session:
        session.step(1000)
        peak = session.statistics().memory_bytes + counts.data.nbytes + counts.offsets.nbytes + counts.counts.nbytes
    assert 0.75 < memory_needed(len(counts), len(counts.data), 256, 1000) / peak < 1.25


def test_ids_above_65535_take_twice_as_much() -> None:
    narrow, wide = (memory_needed(WORDS, POSITIONS, tokens, tokens + 1000) for tokens in (2**16 - 1, 2**16))
    assert wide - narrow == 2 * (WORDS + POSITIONS)
