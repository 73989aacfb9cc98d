"""run.json: typed, checksummed, and refused when it is anything else."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import pytest

from bpeflow._util.atomic import checksummed
from bpeflow.config import Settings, make_settings
from bpeflow.errors import FormatError
from bpeflow.run_dir.run_files import SCHEMA_VERSION, RunReport, read_report, start_report


@pytest.fixture
def report() -> RunReport:
    settings = make_settings(Settings, {"input": "corpus.txt", "vocab_size": 300})
    return replace(start_report(settings), files=("vocab.json", "b\udcff"))


def test_a_report_is_read_as_it_was_written(report: RunReport, tmp_path: Path) -> None:
    report.write(tmp_path / "run.json")
    assert read_report(tmp_path) == report
    values = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert values["schema_version"] == SCHEMA_VERSION
    assert values["settings"]["vocab_size"] == 300


def test_a_folder_without_a_report_has_none(tmp_path: Path) -> None:
    assert read_report(tmp_path) is None


def test_a_report_cannot_be_changed(report: RunReport) -> None:
    with pytest.raises(FrozenInstanceError):
        report.seconds = 1.0  # type: ignore[misc]


def test_a_report_that_was_changed_is_refused(report: RunReport, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    report.write(path)
    path.write_text(path.read_text(encoding="utf-8").replace("vocab.json", "vocab.yaml"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"run\.json: damaged, or changed after the run: its checksum"):
        read_report(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 1}, "schema version 1, this bpeflow reads 2"),
        ({"schema_version": 99}, "schema version 99, this bpeflow reads 2"),
        ({"schema_version": None}, "schema version None"),
        ({"settings": None}, "settings: Input should be a valid dictionary"),
        ({"seconds": "long"}, "seconds: "),
        ({"surprise": 1}, "surprise: "),
    ],
)
def test_what_is_not_a_report_is_refused(
    report: RunReport, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    values = {**asdict(report), **change}
    (tmp_path / "run.json").write_text(json.dumps(checksummed(values)), encoding="utf-8")
    with pytest.raises(FormatError, match=said):
        read_report(tmp_path)
