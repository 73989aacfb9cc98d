"""The memory limit: its default, and how it is shared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bpeflow.counting.budget import MIN_SHARE, MemoryBudget, _available, _control_group_limits, default_limit


@pytest.mark.parametrize("limit", [16 * 10**6, 64 * 10**6, 8 * 10**9])
@pytest.mark.parametrize("counters", [1, 2, 5])
@pytest.mark.parametrize("mergers", [1, 3])
def test_shares_fit_the_limit(limit: int, counters: int, mergers: int) -> None:
    memory = MemoryBudget.share(limit, counters, mergers)
    sent = counters * memory.largest_sent_table // 2  # a shard takes less than half of the table's memory
    assert counters * memory.counter + sent // 2 <= limit
    assert mergers * memory.merger <= limit
    for held in (0, sent // mergers):
        files = memory.open_shards()
        assert files * memory.buffer_size(files) <= memory.merger // 4
        assert held + memory.sorting(held) <= memory.merger * 3 // 4
    assert mergers * memory.largest_sent_result <= limit // 8
    assert memory.chunk_size(8_000_000) * 32 <= max(memory.counter, 32 << 16)


def test_every_process_gets_the_minimum_share() -> None:
    memory = MemoryBudget.share(16 * 10**6, 100, 100)
    assert memory == MemoryBudget(MIN_SHARE, MIN_SHARE)
    assert memory.open_shards() >= 2
    assert memory.buffer_size(1000) > 0
    assert memory.sorting(10**9) > 0


def test_ample_memory_does_not_reduce_the_chunk_size() -> None:
    assert MemoryBudget.share(8 * 10**9, 2, 1).chunk_size(8_000_000) == 8_000_000


def test_the_default_is_half_of_what_is_available() -> None:
    assert 0 < default_limit() <= psutil.virtual_memory().total // 2


def test_available_memory_comes_from_meminfo_or_else_from_psutil(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       100 kB\nMemAvailable:    40 kB\n")
    assert _available(meminfo) == 40 * 1024
    for damaged in ("MemTotal: 100 kB\n", "MemAvailable: much\n"):
        meminfo.write_text(damaged)
        assert 0 < _available(meminfo) <= psutil.virtual_memory().total
    assert 0 < _available(tmp_path / "none") <= psutil.virtual_memory().total


def test_control_groups_limit_the_default(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "a" / "b").mkdir(parents=True)
    (root / "memory" / "c").mkdir(parents=True)
    (root / "a" / "memory.max").write_text("1000\n")
    (root / "a" / "b" / "memory.max").write_text("max\n")
    (root / "memory" / "c" / "memory.limit_in_bytes").write_text("3000\n")
    own.write_text("0::/a/b\n")
    assert _control_group_limits(root, own) == [1000]
    own.write_text("7:cpu,cpuacct:/x\n5:memory:/c\n")
    assert _control_group_limits(root, own) == [3000]
    assert _control_group_limits(root, tmp_path / "none") == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as on Linux")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_process_limits_limit_the_default(limit: str) -> None:
    script = f"""
import resource
from bpeflow.counting.budget import default_limit
resource.setrlimit(resource.{limit}, (1 << 30, 1 << 30))
print(default_limit())
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert 1 << 27 < int(printed) < 1 << 29, "half of 1 GB, minus the memory that the process already has"
