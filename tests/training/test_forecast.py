"""A merge step that will not fit is announced while the corpus is counted, once, and changes nothing."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow.backends.native import BYTES_PER_POSITION
from bpeflow.config import Settings, make_settings
from bpeflow.counting.growth import GrowthForecast
from bpeflow.training import forecast as forecasting
from bpeflow.training.forecast import MergeStepWarning, memory_needed

FORECAST = GrowthForecast(done=16 * 10**9, total=10**11, distinct=4 * 10**8, positions=18 * 10**9, learned=18 * 10**9)
ENOUGH = 10**15


def settings(**values: object) -> Settings:
    return make_settings(Settings, {"input": "corpus.txt", "vocab_size": 300, **values})


def test_it_names_the_estimate_and_the_remedy_once(caplog: pytest.LogCaptureFixture) -> None:
    warn = MergeStepWarning(settings(), memory=64 * 10**9, positions=2**32)
    warn(FORECAST)
    warn(FORECAST)
    assert [record.getMessage() for record in caplog.records] == [
        "judging by 16.0 GB of 100.0 GB, the corpus has about 400.0 million distinct pre-tokens with 18.0 billion "
        "positions (their bytes): learning merges from them takes about 276.4 GB of memory, and 64.0 GB are available "
        "and more than the 4,294,967,296 positions that native backends have. Use --thin_rare below=5,keep=0.1, also "
        "after counting (bpeflow merge, or --resume); or take a sample of the corpus (max_bytes of a source)"
    ]


def test_each_limit_is_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    fits = memory_needed(FORECAST)
    assert fits == 18 * 10**9 * (BYTES_PER_POSITION + 1) + 16 * 4 * 10**8
    for memory, positions, reasons in (
        (fits, FORECAST.learned, set()),
        (fits - 1, FORECAST.learned, {"of memory"}),
        (fits, FORECAST.learned - 1, {"positions that native backends have"}),
    ):
        caplog.clear()
        MergeStepWarning(settings(), memory, positions)(FORECAST)
        assert len(caplog.records) == bool(reasons)
        assert {text for text in ("of memory", "positions that native backends have") if text in caplog.text} == reasons


def test_with_thin_rare_what_is_left_counts(caplog: pytest.LogCaptureFixture) -> None:
    thinned = settings(thin_rare="below=5,keep=0.1")
    left = GrowthForecast(done=1, total=2, distinct=10, positions=10**6, learned=2 * 10**5)
    MergeStepWarning(thinned, ENOUGH, positions=2 * 10**5)(left)
    assert not caplog.records
    MergeStepWarning(thinned, ENOUGH, positions=10**5)(left)
    assert "1.0 million positions (their bytes), 200,000 after thin_rare: " in caplog.text
    assert "Use thin_rare with a smaller keep, also after counting" in caplog.text


def test_a_run_that_learns_nothing_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    MergeStepWarning(settings(skip_merge=True), memory=1, positions=1)(FORECAST)
    assert not caplog.records


def test_a_run_is_warned_while_it_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its results and the report are those of a run that is not warned."""
    corpus = write_corpus(tmp_path / "corpus")
    values = {"input": str(corpus), "vocab_size": 300, "segment_size": "3kb"}
    caplog.set_level(logging.WARNING)
    quiet = bpeflow.train({**values, "out_dir": tmp_path / "quiet"})
    assert not caplog.records
    monkeypatch.setattr(forecasting, "available_memory", lambda: 1000)
    warned = bpeflow.train({**values, "out_dir": tmp_path / "warned"})
    (record,) = caplog.records
    assert re.match(r"judging by [5-9]\.\d kB of 17\.\d kB, the corpus has about ", record.getMessage())
    for name in ("counts.npz", "vocab.json", "merges.txt"):
        assert (tmp_path / "warned" / name).read_bytes() == (tmp_path / "quiet" / name).read_bytes()
    assert warned.report.counting is not None and quiet.report.counting is not None
    assert warned.report.counting.growth == quiet.report.counting.growth
    assert len(warned.report.counting.growth) > 2
