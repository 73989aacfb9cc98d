"""Comparing backends: equality is checked, each backend is measured, and a difference is an error."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console

from bpeflow.backends import BACKENDS
from bpeflow.backends.base import MergeTask
from bpeflow.backends.python_backend import PythonBackend, PythonSession
from bpeflow.cli.compare import compare, contenders, print_comparison
from bpeflow.cli.main import main
from bpeflow.config import MergeSettings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import BackendsDifferError, ConfigError

COUNTS = PretokenCounts.from_mapping({"low": 5, "lower": 2, "widest": 3, "newest": 6})
HERE = [backend.name for backend in BACKENDS if backend.unavailable() is None]


@pytest.fixture
def counts_file(tmp_path: Path) -> Path:
    COUNTS.save(tmp_path / "counts.npz")
    return tmp_path / "counts.npz"


def settings(**values: object) -> MergeSettings:
    return MergeSettings(vocab_size=265, special_tokens=(), **values)  # type: ignore[arg-type]


def test_every_backend_is_measured_in_every_round(counts_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--counts", str(counts_file), "--vocab_size", "262", "--rounds", "3", "--threads", "1", "2"]
    assert main(["compare", *flags, "--set", "special_tokens=[]"]) == 0
    out, err = capsys.readouterr()
    assert "4 distinct pre-tokens, 6 merges, equal everywhere; medians of 3 rounds" in out
    assert main(["compare", *flags, "--set", "special_tokens=[]", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = [("omp", 1), ("omp", 2), ("c", 1), ("python", 1)]
    found = [(row["backend"], row["threads"]) for row in report["contenders"]]
    assert found == [(name, threads) for name, threads in expected if name in HERE]
    assert all(len(row["seconds"]) == 3 and min(row["seconds"]) > 0 for row in report["contenders"])
    assert all(sorted(row["seconds"])[1] == row["median_seconds"] for row in report["contenders"])
    assert all(
        row["occurrences_merged"] == report["contenders"][0]["occurrences_merged"] for row in report["contenders"]
    )
    assert (report["distinct_pretokens"], report["merges"], report["settings"]["vocab_size"]) == (4, 6, 262)
    assert err.count("python: ") == 3
    assert err.startswith("INFO: the python backend takes part, and may take minutes: --backends names others\n")


def test_a_run_folder_brings_its_settings_and_quiet_prints_the_table_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.txt").write_text("low lower lowest newest widest " * 20, encoding="utf-8")
    run = tmp_path / "run"
    flags = ["--input", str(tmp_path / "corpus.txt"), "--vocab_size", "270", "--out_dir", str(run), "--quiet"]
    assert main([*flags, "--set", "special_tokens=[<a>, <b>, <c>]"]) == 0
    before = sorted(run.iterdir())
    assert main(["compare", "--counts", str(run), "--init_from", str(run), "--backends", "python", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "11 merges, equal everywhere; medians of 1 round," in out
    assert err == ""
    assert sorted(run.iterdir()) == before


def test_backends_with_one_thread_are_listed_once() -> None:
    entrants = contenders([*HERE, "python", "auto"], [1, 2, 2])
    threads = {name: [c.threads for c in entrants if c.backend == name] for name in HERE}
    assert threads == {name: [1, 2] if name == "omp" else [None] for name in HERE}


def test_what_cannot_be_compared_is_refused(counts_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="fortran"):
        contenders(["python", "fortran"], [1])
    assert main(["compare", "--counts", str(counts_file)]) == 2
    assert "vocab_size is missing" in capsys.readouterr().err
    assert main(["compare", "--counts", str(counts_file.parent / "none.npz"), "--vocab_size", "300"]) == 2
    assert "no counts at" in capsys.readouterr().err


def test_contenders_take_turns(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    entrants = contenders(HERE, [1])
    compare(COUNTS, settings(), entrants, 3)
    heard = [record.message.partition(" ")[0].rstrip(":") for record in caplog.records]
    count = len(entrants)
    assert all(sorted(heard[i * count : (i + 1) * count]) == sorted(HERE) for i in range(3))
    assert [heard[i * count] for i in range(3)] == [entrants[i % count].backend for i in range(3)]


def test_the_table_has_the_fastest_first() -> None:
    entrants = contenders(HERE, [1])
    learned = compare(COUNTS, settings(), entrants, 1)
    for seconds, contender in enumerate(reversed(entrants), start=1):
        contender.rounds[0] = (float(seconds), contender.rounds[0][1])
    out = io.StringIO()
    print_comparison(Console(file=out, width=160), COUNTS, learned, entrants)
    rows = [line.split() for line in out.getvalue().splitlines()[2:]]
    assert [row[0] for row in rows] == [contender.backend for contender in reversed(entrants)]
    assert [row[3] for row in rows] == [f"{seconds:.2f}" for seconds in range(1, len(rows) + 1)]
    for row in rows:
        total, parts = float(row[2]), sum(map(float, row[4:8]))
        assert parts == pytest.approx(total, abs=0.003)  # each is rounded


class Wrong(PythonSession):
    """Miscounts the third merge, or stops after the second."""

    def step(self, max_merges: int) -> npt.NDArray[np.void]:
        records = super().step(max_merges)
        if self._task.min_frequency > 1:
            return records[:2]
        records["count"][2] += 1
        return records


def test_the_first_difference_is_reported_with_status_1(
    counts_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    native = next((name for name in HERE if name != "python"), None)
    if native is None:
        pytest.skip("there is one backend only")

    def start(self: PythonBackend, task: MergeTask) -> PythonSession:
        return Wrong(task)

    monkeypatch.setattr(PythonBackend, "start", start)
    common = ["compare", "--counts", str(counts_file), "--backends", native, "python", "--vocab_size", "265"]
    common += ["--set", "special_tokens=[]", "--threads", "1", "--quiet"]
    assert main(common) == 1
    out, err = capsys.readouterr()
    assert "merge 2 differs" in err
    assert "((b'o', b'w'), 7), python: ((b'o', b'w'), 8); please report this" in err
    assert out == ""
    with pytest.raises(BackendsDifferError, match="python: no more merges"):
        compare(COUNTS, settings(min_frequency=2), contenders([native, "python"], [1]), 1)
