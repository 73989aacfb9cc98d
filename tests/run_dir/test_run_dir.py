"""The run folder."""

from __future__ import annotations

import json
import logging
import resource
from pathlib import Path

import pytest

from bpeflow.config import Settings
from bpeflow.counting.fingerprint import MANIFEST_FILE
from bpeflow.flow import MonitorSample
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import (
    COUNTS_FILE,
    DONE_FILE,
    FIRST_STAGE,
    MONITOR_FILE,
    REPORT_FILE,
    SEGMENTS,
    SETTINGS_FILE,
    UNFINISHED,
    has_first_stage,
)
from bpeflow.run_dir.run_dir import RunDir, remove_unfinished


def test_a_full_disk_ends_the_sample_file_but_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file ends with a whole line, and the warning comes once."""
    folder = RunDir(tmp_path)
    folder.begin(Settings(input=("corpus",), vocab_size=300))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, limits[1]))
    try:
        with caplog.at_level(logging.WARNING), folder.monitor(True, Observer(), append=False) as on_sample:
            assert on_sample is not None
            for second in range(20):
                on_sample(MonitorSample(float(second), {}, {}, (), {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines = (tmp_path / UNFINISHED / MONITOR_FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["elapsed"] for line in lines] == list(range(len(lines)))
    assert 1 < len(lines) < 20
    assert caplog.text.count("no more samples are written: ") == 1


def test_the_remains_of_a_killed_run_are_cleaned_up_first(tmp_path: Path) -> None:
    """So nothing useless stays, however soon this run ends."""
    unfinished = tmp_path / UNFINISHED
    segments = unfinished / SEGMENTS
    segments.mkdir(parents=True)
    parts = [unfinished / ".counts.npz.1.part", segments / ".manifest.json.1.part", segments / ".000001.shard.1.part"]
    for path in (*parts, segments / "000000.shard", segments / MANIFEST_FILE, unfinished / "vocab.json"):
        path.write_bytes(b"of a killed run")

    with RunDir(tmp_path):
        left = {path.name for path in unfinished.rglob("*")}
    assert left == {SEGMENTS, "000000.shard", MANIFEST_FILE}  # even if it is damaged: the user decides

    (segments / MANIFEST_FILE).unlink()
    with RunDir(tmp_path):
        assert not unfinished.exists()


@pytest.mark.parametrize(
    "names",
    [
        [COUNTS_FILE, f"{UNFINISHED}/vocab.json", f"{UNFINISHED}/{DONE_FILE}"],  # killed while it was published
        [COUNTS_FILE, REPORT_FILE, "vocab.json"],
        [f"{UNFINISHED}/{COUNTS_FILE}", f"{UNFINISHED}/{REPORT_FILE}", f"{UNFINISHED}/{SETTINGS_FILE}"],
    ],
    ids=["published", "finished", "counted"],
)
def test_a_first_stage_is_discarded_with_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """A run that is killed at any step of it must not resume with the files that are left."""
    unfinished, unlink, left = tmp_path / UNFINISHED, Path.unlink, 0

    def unlink_some(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_some)
    files = {unfinished / SETTINGS_FILE, *(unfinished / FIRST_STAGE / name for name in names)}
    for steps in range(1, len(files)):
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        assert has_first_stage(unfinished)
        left = steps
        with pytest.raises(KeyboardInterrupt):
            remove_unfinished(tmp_path)
        assert len([path for path in unfinished.rglob("*") if path.is_file()]) == len(files) - steps
        assert not has_first_stage(unfinished)
