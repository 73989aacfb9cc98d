"""A merge step that will not fit is announced while the corpus is counted, once, and changes nothing.

The estimate of the memory that learning takes is near the memory that it takes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow.backends.base import MergeBackend, MergeTask
from bpeflow.config import Settings, make_settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.growth import GrowthForecast
from bpeflow.training import forecast as forecasting
from bpeflow.training.forecast import MergeStepWarning, learning_memory, memory_needed

FORECAST = GrowthForecast(done=16 * 10**9, total=10**11, distinct=4 * 10**8, positions=18 * 10**9, learned=18 * 10**9)


def settings(**values: object) -> Settings:
    return make_settings(Settings, {"input": "corpus.txt", "vocab_size": 32000, **values})


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the memory that is available."""
    return lambda size: monkeypatch.setattr(forecasting, "available_memory", lambda: size)


def test_it_names_the_estimate_and_the_remedy_once(
    caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    available(64 * 10**9)
    warn = MergeStepWarning(settings())
    warn(FORECAST)
    warn(FORECAST)
    needed = memory_needed(FORECAST.distinct, FORECAST.positions, 32000) / 1e9
    assert [record.getMessage() for record in caplog.records] == [
        "judging by 16.0 GB of 100.0 GB, the corpus has about 400.0 million distinct pre-tokens of 18.0 GB in total: "
        f"learning merges takes about {needed:.1f} GB of memory, and 64.0 GB are available. "
        "Use --thin_rare below=5,keep=0.1, also after counting (bpeflow merge, or --resume); or take a sample of the "
        "corpus (max_bytes of a source)"
    ]


@pytest.mark.parametrize("missing", [0, 1])
def test_what_fits_is_not_mentioned(
    missing: int, caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    available(learning_memory(FORECAST, settings()) - missing)
    MergeStepWarning(settings())(FORECAST)
    assert len(caplog.records) == missing


def test_with_thin_rare_what_is_left_counts(caplog: pytest.LogCaptureFixture, available: Callable[[int], None]) -> None:
    thinned = settings(thin_rare="below=5,keep=0.1")
    left = GrowthForecast(done=1, total=2, distinct=10**5, positions=10**6, learned=2 * 10**5)
    needed = learning_memory(left, thinned)
    assert needed == 16 * 10**5 + 10**6 + memory_needed(2 * 10**4, 2 * 10**5, 32000)
    assert needed < learning_memory(left, settings())
    available(needed)
    MergeStepWarning(thinned)(left)
    assert not caplog.records
    available(needed - 1)
    MergeStepWarning(thinned)(left)
    assert "100,000 distinct pre-tokens of 1.0 MB in total, 200.0 kB after thin_rare: learning" in caplog.text
    assert "Use thin_rare with a smaller keep, also after counting" in caplog.text


def test_a_run_that_learns_nothing_is_not_warned(
    caplog: pytest.LogCaptureFixture, available: Callable[[int], None]
) -> None:
    available(0)
    MergeStepWarning(settings(skip_merge=True))(FORECAST)
    assert not caplog.records


def test_a_run_is_warned_while_it_counts(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    available: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its results and the report are those of a run that is not warned."""
    monkeypatch.setattr("bpeflow.counting.growth.MIN_CORPUS", 1000)
    corpus = write_corpus(tmp_path / "corpus")
    values = {"input": str(corpus), "vocab_size": 300, "segment_size": "3kb"}
    caplog.set_level(logging.WARNING)
    quiet = bpeflow.train({**values, "out_dir": tmp_path / "quiet"})
    assert not caplog.records
    available(1000)
    warned = bpeflow.train({**values, "out_dir": tmp_path / "warned"})
    (record,) = caplog.records
    assert re.match(r"judging by [5-9]\.\d kB of 17\.\d kB, the corpus has about ", record.getMessage())
    for name in ("counts.npz", "vocab.json", "merges.txt"):
        assert (tmp_path / "warned" / name).read_bytes() == (tmp_path / "quiet" / name).read_bytes()
    assert warned.report.counting is not None and quiet.report.counting is not None
    assert warned.report.counting.growth == quiet.report.counting.growth
    assert len(warned.report.counting.growth) > 2


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
