"""The run folder."""

from __future__ import annotations

import json
import logging
import resource
from pathlib import Path

import pytest

from bpeflow.flow import Sample
from bpeflow.observer import Observer
from bpeflow.publishing import MONITOR_FILE, UNFINISHED
from bpeflow.run_folder import RunFolder


def test_a_full_disk_ends_the_file_of_samples_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there of it are whole lines, and it is said once."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        folder = RunFolder(tmp_path)
        folder.begin()
        with caplog.at_level(logging.WARNING), folder.monitor(True, Observer(), append=False) as on_sample:
            assert on_sample is not None
            for second in range(20):
                on_sample(Sample(float(second), {}, {}, ()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines = (tmp_path / UNFINISHED / MONITOR_FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["elapsed"] for line in lines] == list(range(len(lines)))
    assert 1 < len(lines) < 20
    assert caplog.text.count("has no more samples from here on: ") == 1
