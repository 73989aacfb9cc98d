"""The backends side by side on the same counts: equality asserted, speed printed.

Not collected with the tests. Run it with

    python -m pytest tests/bench_backends.py --benchmark-enable --benchmark-only

The counts are those of the TinyStories reference where it is at hand, and of Python's standard library.
"""

from __future__ import annotations

import sysconfig
from typing import Any

import pytest
from real_data import real_data

import bpeflow
from bpeflow.backends.base import MergeBackend

VOCAB_SIZE = 8000
#: What the first backend learned from each table; the others must learn the same.
learned: dict[str, Any] = {}


@pytest.fixture(scope="session")
def standard_library() -> bpeflow.PretokenCounts:
    folder = sysconfig.get_paths()["stdlib"]
    return bpeflow.count([folder + "/*.py", folder + "/*/*.py"], invalid_utf8="skip", exclude=["**/site-packages/**"])


@pytest.fixture(scope="session")
def tinystories() -> bpeflow.PretokenCounts:
    return bpeflow.PretokenCounts.from_json(real_data("reference/tinystories_5M.pretoken_counts.json"))


@pytest.mark.parametrize("table", ["tinystories", "standard_library"])
def test_speed_of_learning_merges(
    benchmark: Any, backend: MergeBackend, table: str, request: pytest.FixtureRequest
) -> None:
    counts = request.getfixturevalue(table)
    benchmark.group = f"{table}: {len(counts):,} distinct pre-tokens, vocabulary of {VOCAB_SIZE:,}"
    merges = benchmark.pedantic(
        bpeflow.learn_merges, (counts, VOCAB_SIZE), {"backend": backend.name}, rounds=3, warmup_rounds=1
    )
    assert (merges.pairs, merges.counts) == learned.setdefault(table, (merges.pairs, merges.counts))
