"""The run folder."""

from __future__ import annotations

import json
import logging
import resource
from pathlib import Path

import pytest

from bpeflow.counting.manifest import MANIFEST_FILE
from bpeflow.flow import MonitorSample
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import MONITOR_FILE, SEGMENTS, UNFINISHED
from bpeflow.run_dir.run_dir import RunDir


def test_a_full_disk_ends_the_file_of_samples_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there of it are whole lines, and it is said once."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        folder = RunDir(tmp_path)
        folder.begin()
        with caplog.at_level(logging.WARNING), folder.monitor(True, Observer(), append=False) as on_sample:
            assert on_sample is not None
            for second in range(20):
                on_sample(MonitorSample(float(second), {}, {}, ()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines = (tmp_path / UNFINISHED / MONITOR_FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["elapsed"] for line in lines] == list(range(len(lines)))
    assert 1 < len(lines) < 20
    assert caplog.text.count("no more samples are written: ") == 1


def test_what_a_killed_run_has_left_is_looked_through_before_anything_else(tmp_path: Path) -> None:
    """So nothing of no use stays, however soon this run ends too."""
    unfinished = tmp_path / UNFINISHED
    segments = unfinished / SEGMENTS
    segments.mkdir(parents=True)
    parts = [unfinished / ".counts.npz.1.part", segments / ".manifest.json.1.part", segments / ".000001.run.1.part"]
    for path in (*parts, segments / "000000.shard", segments / MANIFEST_FILE, unfinished / "vocab.json"):
        path.write_bytes(b"of a killed run")

    with RunDir(tmp_path):
        left = {path.name for path in unfinished.rglob("*")}
    assert left == {SEGMENTS, "000000.shard", MANIFEST_FILE}  # even if it is damaged: that is for people to decide

    (segments / MANIFEST_FILE).unlink()
    with RunDir(tmp_path):
        assert not unfinished.exists()
