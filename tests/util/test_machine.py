"""The memory that this process may take."""

from __future__ import annotations

from pathlib import Path

import psutil

from bpeflow._util.machine import _available, _control_group_limits


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
