"""The memory limit: its default, and how it is shared."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from bpeflow._util.machine import default_memory_limit
from bpeflow.counting.budget import MIN_SHARE, MemoryBudget


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as on Linux")
@pytest.mark.parametrize("limit", [16 * 10**6, 64 * 10**6, 8 * 10**9])
@pytest.mark.parametrize("counters", [1, 2, 5])
@pytest.mark.parametrize("mergers", [1, 3])
def test_shares_fit_the_limit(limit: int, counters: int, mergers: int) -> None:
    memory = MemoryBudget.share(limit, counters, mergers)
    sent = counters * memory.largest_sent_table // 2  # a shard takes less than half of the table's memory
    assert counters * memory.counter + sent // 2 <= limit
    assert mergers * memory.merger <= limit
    for files in (1, 100, 200):
        assert files * memory.buffer_size(files) <= memory.merger // 4
    assert mergers * memory.largest_sent_result <= limit // 8
    assert memory.chunk_size(8_000_000) * 32 <= max(memory.counter, 32 << 16)


def test_every_process_gets_the_minimum_share() -> None:
    memory = MemoryBudget.share(16 * 10**6, 100, 100)
    assert memory == MemoryBudget(MIN_SHARE, MIN_SHARE)
    assert memory.buffer_size(1000) > 0


def test_ample_memory_does_not_reduce_the_chunk_size() -> None:
    assert MemoryBudget.share(8 * 10**9, 2, 1).chunk_size(8_000_000) == 8_000_000


def test_the_default_is_half_of_what_is_available() -> None:
    assert 0 < default_memory_limit() <= psutil.virtual_memory().total // 2


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as on Linux")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_process_limits_limit_the_default(limit: str) -> None:
    script = f"""
import resource
from bpeflow._util.machine import default_memory_limit
resource.setrlimit(resource.{limit}, (1 << 30, 1 << 30))
print(default_memory_limit())
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert 1 << 27 < int(printed) < 1 << 29, "half of 1 GB, minus the memory that the process already has"
