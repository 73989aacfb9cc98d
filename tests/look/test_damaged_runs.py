"""Pages about damaged run folders: the error names the file, and is none of Python's own."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bpeflow._util.atomic import checksummed
from bpeflow.errors import BpeflowError, FormatError
from bpeflow.look.page import write_page

ODD = [None, -1, 0, 1e308, math.inf, "", "x", "2026-13-45", "0001-01-01T00:00:00+14:00", [], {}, [None], 10**30, True]


@pytest.fixture
def damaged(run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    return folder


def write_report(folder: Path, changes: dict[str, Any]) -> None:
    """Change the report, and forge its checksum."""
    report = json.loads((folder / "run.json").read_text(encoding="utf-8")) | changes
    del report["sha256"]
    (folder / "run.json").write_text(json.dumps(checksummed(report)), encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["run.json", "monitor.jsonl", "vocab.json", "bpeflow.json", "counts.npz", "merges.txt"]
)
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "", "\0"])
def test_a_file_of_nonsense_is_named(damaged: Path, name: str, text: str) -> None:
    (damaged / name).write_text(text, encoding="utf-8")
    try:
        write_page(damaged, damaged / "page.html")
    except BpeflowError as error:
        assert name in str(error) or (name == "merges.txt" and "vocab.json" in str(error))
    else:
        assert (name, text) == ("monitor.jsonl", "")


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e308])
def test_stages_may_have_any_length(damaged: Path, seconds: float) -> None:
    report = json.loads((damaged / "run.json").read_text(encoding="utf-8"))
    for stage in (report["counting"], report["counting"]["stages"]["reducer"], report["learning"]):
        stage["seconds"] = seconds
    write_report(damaged, report)
    write_page(damaged, damaged / "page.html")


def test_a_sample_without_a_field_is_named(damaged: Path) -> None:
    lines = (damaged / "monitor.jsonl").read_text(encoding="utf-8").splitlines()
    sample = json.loads(lines[1])
    del sample["queues"]["chunk_queue"]["items"]
    lines[1] = json.dumps(sample)
    (damaged / "monitor.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(FormatError, match=r"monitor.jsonl: not samples .* 1.queues.chunk_queue.items Field required"):
        write_page(damaged, damaged / "page.html")


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in a JSON value."""
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*place, key))


def test_any_damage_is_an_error_of_our_own(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    monkeypatch.setattr("bpeflow.look.charts.line_chart", lambda *_, **__: "")  # drawing takes most of the time
    monitored = (damaged / "monitor.jsonl").read_text(encoding="utf-8")
    report = json.loads((damaged / "run.json").read_text(encoding="utf-8"))
    del report["sha256"]
    for _ in range(60):
        samples = [json.loads(line) for line in monitored.splitlines()]
        values = deepcopy(choose.choice([report, samples]))
        place = choose.choice(list(places(values))[1:])
        parent = values
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = choose.choice(ODD)
        if isinstance(values, dict):
            (damaged / "run.json").write_text(json.dumps(checksummed(values)), encoding="utf-8")
        else:
            (damaged / "monitor.jsonl").write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
        try:
            write_page(damaged, damaged / "page.html")
        except (BpeflowError, OSError) as error:
            assert str(error)
        (damaged / "run.json").write_text(json.dumps(checksummed(report)), encoding="utf-8")
        (damaged / "monitor.jsonl").write_text(monitored, encoding="utf-8")
