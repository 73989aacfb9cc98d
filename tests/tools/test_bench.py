"""Tests of tools/bench.py: rounds, single measurements, the table and the JSON file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import bench
from benchmarks import tables
from benchmarks.contender import Contender, Job, Subject
from benchmarks.count import SUBJECT
from benchmarks.process import measure
from benchmarks.report import disagreement
from benchmarks.rounds import Result, run_rounds, turns

pytestmark = pytest.mark.slow

TEXT = "low lower lowest<|endoftext|>newer wider\n  it's 42\n\nlow"
#: With gpt2's pattern: low ×2, " lower", " lowest", newer, " wider", "\n ", " it", "'s", " 42", "\n", "\n"
OUTCOME = {"distinct": 10, "total": 12}


def script(name: str, code: str, **options: Any) -> Contender:
    return Contender(name, lambda job: ["-c", code], "a test", **options)


def job(tmp_path: Path) -> Job:
    return Job((), "gpt2", 1, tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8", newline="")
    return path


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


# ---- rounds ----


def test_contenders_take_turns_and_each_round_starts_with_the_next_one() -> None:
    contenders = [script(name, "") for name in "ABC"]
    order = [(number, contender.name) for number, contender in turns(contenders, 4)]
    assert "".join(name for _, name in order) == "ABC" + "BCA" + "CAB" + "ABC"
    assert [number for number, _ in order] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_a_failed_contender_is_reported_and_not_measured_again(tmp_path: Path) -> None:
    fails = script("fails", "import sys; sys.exit('first line\\nno memory left\\n')")
    works = script("works", "print('chatter'); print('{\"total\": 3}')")
    progress: list[str] = []
    results = run_rounds([fails, works], job(tmp_path), 2, 60, lambda n, contender, m: progress.append(contender.name))
    assert progress == ["fails", "works", "works"]
    assert (results[0].error, results[0].median_seconds) == ("no memory left", None)
    assert (results[1].error, results[1].outcome, len(results[1].seconds)) == (None, {"total": 3}, 2)


def test_a_contender_without_a_readable_result_has_failed(tmp_path: Path) -> None:
    [silent] = run_rounds([script("silent", "")], job(tmp_path), 1, 60, lambda *_: None)
    assert silent.error is not None
    assert silent.error.startswith("cannot read its result")


def test_a_contender_with_a_different_result_each_time_has_failed(tmp_path: Path) -> None:
    fickle = script("fickle", "import time; print('{\"total\": %d}' % time.time_ns())")
    [result] = run_rounds([fickle], job(tmp_path), 2, 60, lambda *_: None)
    assert "in an earlier round" in str(result.error)


def test_differing_results_are_reported() -> None:
    results = [Result(script(name, ""), outcome={"total": total}) for name, total in (("a", 3), ("b", 4), ("c", 3))]
    assert disagreement(results) == "total: 3 (a, c); 4 (b)"
    assert disagreement([*results[::2], Result(script("d", ""))]) is None


# ---- one measurement ----


def test_wall_time_covers_the_whole_process() -> None:
    measurement = measure([sys.executable, "-c", "import time; time.sleep(0.3)"], timeout=60)
    assert measurement.error is None
    assert 0.3 <= measurement.seconds < 30


def test_measured_processes_keep_what_they_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; print(sys.dont_write_bytecode)"
    assert measure([sys.executable, "-c", code], timeout=60).stdout.strip() == "False"


def test_memory_covers_the_largest_process_and_all_together() -> None:
    """Measured from a small process, as the peak of a process is at least the memory of the one that starts it."""
    hold = "import time; block = b'x' * 100_000_000; time.sleep(1)"
    code = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {hold!r}]); {hold}; c.wait()"
    measured = (
        "import dataclasses, json, sys; from benchmarks import process; process.SAMPLING_SHARE = 1.0\n"
        f"print(json.dumps(dataclasses.asdict(process.measure([sys.executable, '-c', {code!r}], timeout=60))))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(bench.__file__).parent)}
    done = subprocess.run([sys.executable, "-c", measured], capture_output=True, text=True, check=True, env=environment)
    measurement = json.loads(done.stdout)
    assert measurement["error"] is None
    assert 100_000_000 < measurement["largest_bytes"] < 200_000_000 < measurement["tree_bytes"]
    assert measurement["samples"] > 3


def test_a_timeout_kills_all_processes(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(c.pid)); time.sleep(60)"
    )
    measurement = measure([sys.executable, "-c", code, str(tmp_path / "child")], timeout=3)
    assert measurement.error == "timed out after 3 s"
    assert measurement.seconds < 30
    assert_gone(int((tmp_path / "child").read_text()))


def test_processes_left_running_are_killed(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    measurement = measure([sys.executable, "-W", "ignore", "-c", code], timeout=60)
    assert_gone(int(measurement.stdout))


def test_a_silent_death_is_described_by_its_signal_or_status() -> None:
    measurement = measure([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], timeout=60)
    assert measurement.error == "killed by SIGKILL"
    assert measure([sys.executable, "-c", "raise SystemExit(3)"], timeout=60).error == "exit status 3"


def assert_gone(process_id: int) -> None:
    for _ in range(200):
        if not psutil.pid_exists(process_id) or psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail(f"process {process_id} is still running")


# ---- count ----


def test_count_prints_a_table_and_writes_everything_as_json(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    status = bench.main(
        ["count", "--input", str(corpus), "--rounds", "2", "--only", "bpeflow,regex", "--json", str(target)]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "bpeflow, regex agree: 10 distinct, 12 total" in printed.out
    assert re.search(
        r"^bpeflow +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d +1\.00 +[\d,]+ +[\d,]+ *$", printed.out, re.MULTILINE
    )
    assert [line.split(": ")[:2] for line in printed.err.splitlines()] == [
        ["round 1", "bpeflow"], ["round 1", "regex"], ["round 2", "regex"], ["round 2", "bpeflow"]
    ]  # fmt: skip

    report = json.loads(target.read_text(encoding="utf-8"))
    assert report["machine"]["cores"] >= 1
    assert report["versions"]["bpeflow"]
    assert report["input"][0]["bytes"] == len(TEXT.encode())
    assert report["settings"] == {"pattern": "gpt2", "processes": os.cpu_count(), "rounds": 2}
    ours, plain = report["contenders"]
    assert (ours["name"], ours["error"], ours["outcome"], len(ours["rounds"])) == ("bpeflow", None, OUTCOME, 2)
    assert ours["command"].startswith("python -m bpeflow --input ")
    assert plain["command"].startswith("python tools/benchmarks/peers/count.py regex ")
    assert {"seconds", "largest_bytes", "tree_bytes", "samples", "error"} == set(plain["rounds"][0])
    assert plain["rounds"][0]["largest_bytes"] > 1_000_000


@pytest.mark.parametrize("peer", ["gigatoken", "gigabpe", "huggingface"])
def test_each_peer_takes_part(peer: str, corpus: Path, tmp_path: Path) -> None:
    [contender] = [contender for contender in SUBJECT.contenders if contender.name == peer]
    if reason := contender.unavailable("gpt2"):
        pytest.skip(reason)
    [result] = run_rounds([contender], Job((corpus,), "gpt2", 1, tmp_path), 1, 60, lambda *_: None)
    assert result.error is None
    assert result.outcome in (OUTCOME, {})


def test_several_files_are_one_corpus(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = tmp_path / "second.txt"
    second.write_text("est", encoding="utf-8")
    arguments = ["--only", "bpeflow,regex", "--rounds", "1", "--input", str(corpus), str(second)]
    assert bench.main(["count", *arguments]) == 0
    assert "agree: 11 distinct, 13 total" in capsys.readouterr().out


def test_contenders_without_the_pattern_are_skipped(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--pattern", r"[a-z]+|'", "--only", "bpeflow,regex,gigabpe", "--rounds", "1", "--input", str(corpus)]
    assert bench.main(["count", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "bpeflow, regex agree: 8 distinct, 9 total" in printed
    assert "gigabpe skipped: " in printed


@pytest.mark.usefixtures("no_peers")
def test_patterns_are_measured_side_by_side(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = "count gpt2,count tekken,count gpt2 (regex),encode --pattern,encode deepseek_v3"
    arguments = ["--rounds", "1", "--processes", "1", "--pattern", r"\S+|\s+", "--only", only, "--input", str(corpus)]
    assert bench.main(["patterns", *arguments]) == 0
    assert f"encode --pattern, encode deepseek_v3 agree: {len(TEXT):,} bytes" in capsys.readouterr().out


def test_a_failure_shows_in_the_table_and_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.txt").write_bytes(b"caf\xe9 ")
    arguments = ["--only", "bpeflow", "--rounds", "2", "--input", str(tmp_path / "broken.txt")]
    assert bench.main(["count", *arguments]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^bpeflow +failed( +–){6} *$", printed, re.MULTILINE)
    assert re.search(r"^bpeflow failed: bpeflow: .*broken\.txt.*UTF-8", printed, re.MULTILINE)


# ---- choosing contenders ----


@pytest.mark.usefixtures("no_peers")
def test_a_missing_peer_is_skipped_with_the_remedy() -> None:
    chosen, skipped = bench.choose(SUBJECT, "gigatoken,bpeflow", "gpt2")
    assert [contender.name for contender in chosen] == ["bpeflow"]
    assert skipped == {"gigatoken": "gigatoken is not installed: pip install 'bpeflow[bench]'"}


@pytest.mark.usefixtures("no_peers")
def test_having_no_contender_is_an_error(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["count", "--only", "gigabpe", "--input", str(corpus)]) == 1
    assert "pip install 'bpeflow[bench]'" in capsys.readouterr().err


def test_an_unknown_contender_is_refused_with_a_list_of_the_known_ones() -> None:
    subject = Subject("speech", "", (script("demosthenes", ""), script("cicero", "")))
    with pytest.raises(SystemExit, match=r"'catilina'; choose from demosthenes, cicero"):
        bench.choose(subject, "cicero,catilina", "gpt2")


@pytest.mark.parametrize(
    "wrong", [["--input", "missing.txt"], ["--rounds", "0"], ["--processes", "x"], ["--json", "missing/out.json"]]
)
def test_wrong_arguments_are_refused_before_anything_runs(wrong: list[str], corpus: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench.main(["count", "--input", str(corpus), *wrong])


def test_tables_are_written_with_a_column_for_each_input(
    corpus: Path, no_peers: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [
        table for table in tables.TABLES if table.arguments[0] in ("count", "train") or "load" in table.arguments
    ]
    monkeypatch.setattr(tables, "TABLES", measured)
    other = corpus.with_name("other.txt")
    other.write_text(TEXT * 3, encoding="utf-8", newline="")
    assert bench.main(["all", "--input", str(corpus), str(other), "--rounds", "1", "--processes", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## 2")
    assert re.findall(r"^\*\*(.*)\*\*$", text, re.MULTILINE) == [table.title for table in measured]
    assert text.count("| | corpus.txt | other.txt |\n|---|---|---|\n") == len(measured) == 3
    assert "gigatoken: gigatoken is not installed" in text
    cell = r"[\d.e-]+ s(, × [\d.]+)?, [\d,]+ MB"
    for name in ("bpeflow", "bpeflow-1", "bpeflow-superwords", "bpeflow-c"):
        assert re.search(rf"^\| {name} \| {cell} \| {cell} \|$", text, re.MULTILINE), name


@pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.title)
def test_each_table_names_contenders_of_its_subject(table: tables.Table, tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).touch()
    tokenizer = ["--tokenizer", str(tmp_path)] if table.arguments[0] == "encode" else []
    options = bench.make_parser().parse_args([*table.arguments, *tokenizer, "--input", __file__])
    contenders, skipped = bench.choose(options.subject, options.only, options.pattern)
    assert len(contenders) + len(skipped) > 1
