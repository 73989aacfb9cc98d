"""Tests of tools/bench.py train and merge: steps of a process, the peers, and comparing the merges they learn."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import regex

import bench
from benchmarks import merge, train
from benchmarks.compare import compare, compare_all
from benchmarks.contender import Contender, Job
from benchmarks.merge import seconds_of_phases
from benchmarks.peers import train as peers
from benchmarks.process import Measurement
from benchmarks.rounds import Result, run_rounds
from bpeflow.pretokenize.patterns import NAMED_PATTERNS

pytestmark = pytest.mark.slow

SEPARATOR = "<|endoftext|>"
#: Large enough for merges of merges, and small enough to be reached with the text below.
VOCAB_SIZE = 400
PEERS = ["gigabpe", "gigatoken", "rustbpe", "huggingface"]


def made_up_text(length: int) -> str:
    """Make text of few letters, so that many counts tie, with everything that the pattern treats specially."""
    parts = [
        "a",
        "b",
        "ab",
        "ba",
        "é",
        "日",
        " ",
        " ",
        " ",
        "  ",
        "\n",
        "\n\n",
        " \n",
        "\r\n",
        "\t",
        "'s",
        "!?",
        "42",
        SEPARATOR,
    ]
    return "".join(random.Random(5).choices(parts, k=length))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "corpus.txt"
    path.write_text(made_up_text(20_000), encoding="utf-8", newline="")
    return path


def measured(seconds: float, stderr: str = "") -> Measurement:
    return Measurement(seconds, 1, 1, 1, None, "", stderr)


def script(code: str, **options: Any) -> Contender:
    return Contender("script", lambda job: ["-c", code], "a test", **options)


def named(name: str) -> Contender:
    return next(contender for contender in train.SUBJECT.contenders if contender.name == name)


# ---- the step ----


def test_a_step_is_reported_or_the_difference_of_two_medians() -> None:
    three = [measured(seconds) for seconds in (5.0, 9.0, 6.0)]
    assert Result(script(""), three, steps=[1.0, 3.0, 2.0]).step_seconds == 2.0
    assert (
        Result(script(""), three, without_step=[measured(seconds) for seconds in (4.0, 2.0, 1.0)]).step_seconds == 4.0
    )
    assert Result(script(""), three).step_seconds is None
    assert Result(script(""), three, steps=[1.0], error="no").step_seconds is None


def test_an_unreadable_step_is_a_failure(tmp_path: Path) -> None:
    job = Job((), "gpt2", 1, tmp_path)
    silent = script("print('{}')", read_step=seconds_of_phases)
    [result] = run_rounds([silent], job, 2, 60, lambda *_: None)
    error = "cannot read its result: no phase found in its standard error"
    assert (result.error, len(result.measurements)) == (error, 1)
    half = script("print('{}')", without_step=lambda job: ["-c", "raise SystemExit('no memory left')"])
    [result] = run_rounds([half], job, 2, 60, lambda *_: None)
    assert (result.error, result.step_seconds) == ("without the step: no memory left", None)


def test_a_contender_can_have_its_own_environment(tmp_path: Path) -> None:
    code = "import os; print('{\"total\": %s}' % os.environ['BENCH_TEST'])"
    [result] = run_rounds(
        [script(code, environment={"BENCH_TEST": "7"})], Job((), "gpt2", 1, tmp_path), 1, 60, lambda *_: None
    )
    assert result.outcome == {"total": 7}


def test_the_phases_of_gigabpe_are_added_up(tmp_path: Path) -> None:
    stderr = (
        "phase1 cpu-ms (summed across threads):\n  read 0 over 1 readers\n  phase2 alphabet: 400µs\n"
        "  phase2 tokenize: 600000ns\nrss after tokenize (word strings still held): 11 MB\n"
        "  phase2 initial pair count: 24.5ms\n  phase2 merge loop: 1.25s\n"
    )
    assert seconds_of_phases(tmp_path, measured(9.0, stderr)) == pytest.approx(1.2755)


# ---- comparing merges ----


def test_the_first_difference_is_reported() -> None:
    ours = [("a", "b"), ("ab", "c"), ("d", "e")]
    assert compare("x", "y", [*ours, ("f", "g")], ours).first_difference is None
    other = compare("x", "y", [ours[0], ("a", "bc"), ours[2]], ours)
    assert (other.merges, other.first_difference, other.told, other.expected) == (3, 1, "a bc", "ab c")
    short = compare("x", "y", ours[:2], ours)
    assert (short.first_difference, short.told, short.expected) == (2, "", "d e")


def test_tokens_are_compared_if_pairs_are_not_reported() -> None:
    ours = [("a", "b"), ("ab", "c")]
    assert compare("x", "y", [("ab",), ("abc",)], ours).first_difference is None
    assert compare("x", "y", [("ab",), ("abd",)], ours).first_difference == 1


def test_a_comparison_that_is_impossible_says_why() -> None:
    assert compare("x", "y", "timed out", []).error == "timed out"
    assert compare("x", "y", [], "no memory").error == "y: no memory"


@pytest.mark.parametrize(
    ("peer", "pattern"),
    [*((peer, "gpt2") for peer in PEERS), *product(("rustbpe", "huggingface"), ("tekken", r"\w+|\S"))],
)
def test_each_peer_learns_the_merges_of_its_twin(peer: str, pattern: str, corpus: Path, tmp_path: Path) -> None:
    contender = named(peer)
    if reason := contender.unavailable(pattern):
        pytest.skip(reason)
    job = Job((corpus,), pattern, 2, tmp_path, VOCAB_SIZE)
    [result] = run_rounds([contender], job, 1, 60, lambda *_: None)
    assert result.error is None
    [comparison] = compare_all([contender], job, 60, lambda _: None)
    assert (comparison.error, comparison.first_difference) == (None, None)
    assert comparison.merges >= VOCAB_SIZE - 257


def test_peers_have_no_patterns_of_several_steps() -> None:
    assert all(named(peer).unavailable("deepseek_v3") for peer in PEERS)
    assert named("bpeflow-omp").unavailable("deepseek_v3") is None


def test_the_pattern_by_lines_matches_gpt2_on_each_line() -> None:
    whole, by_lines = regex.compile(NAMED_PATTERNS["gpt2"]), regex.compile(train.GPT2_BY_LINES)
    text = made_up_text(20_000)
    expected = [token for line in text.splitlines(keepends=True) for token in whole.findall(line)]
    assert by_lines.findall(text) == expected
    assert whole.findall(text) != expected


def test_documents_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"a\r\n{SEPARATOR}b{SEPARATOR}{SEPARATOR}\nc", "d"]
    files = [tmp_path / "1.txt", tmp_path / "2.txt"]
    for path, text in zip(files, texts, strict=True):
        path.write_text(text, encoding="utf-8", newline="")
    for block in (1, 3, 1000):
        monkeypatch.setattr(peers, "_BLOCK", block)
        assert list(peers._documents([str(path) for path in files])) == ["a\r\n", "b", "", "\nc", "d"]


# ---- the commands ----


def test_train_prints_a_table_and_writes_everything_as_json(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    arguments = ["--input", str(corpus), "--vocab_size", "300", "--rounds", "2", "--only", "bpeflow-python"]
    assert bench.main(["train", *arguments, "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^bpeflow-python( +\d+\.\d\d){3} +\d+\.\d +– +[\d,]+ +[\d,]+ *$", printed, re.MULTILINE)
    assert re.search(r"bpeflow-python agree: 43 merges, [\d,]+ checksum", printed)
    report = json.loads(target.read_text(encoding="utf-8"))
    assert (report["settings"]["vocab_size"], report["step"], report["comparisons"]) == (300, None, [])
    assert len(report["contenders"][0]["rounds"]) == 2


def test_merge_measures_only_the_step(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.json"
    arguments = ["--input", str(corpus), "--vocab_size", "300", "--rounds", "2", "--only", "bpeflow-python"]
    assert bench.main(["merge", *arguments, "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "learning s" in printed
    assert re.search(r"^bpeflow-python( +\d+\.\d\d){4} +– +[\d,]+ +[\d,]+ *$", printed, re.MULTILINE)
    [entry] = json.loads(target.read_text(encoding="utf-8"))["contenders"]
    assert 0 < entry["step_seconds"] < entry["median_seconds"]
    assert len(entry["steps"]) == 2
    assert "--counts COUNTS" in entry["command"]


def test_merge_starts_from_existing_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = tmp_path / "counts.tsv"
    counts.write_text("low\t5\nlower\t2\n", encoding="utf-8")
    arguments = ["--counts", str(counts), "--vocab_size", "260", "--rounds", "1", "--only", "bpeflow-python,rustbpe"]
    assert bench.main(["merge", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "bpeflow-python agree: 3 merges" in printed
    assert "rustbpe skipped: cannot start from counts" in printed


@pytest.mark.parametrize("peer", PEERS)
def test_each_peer_measures_the_merge_step(peer: str, corpus: Path, tmp_path: Path) -> None:
    [contender] = [contender for contender in merge.SUBJECT.contenders if contender.name == peer]
    if reason := contender.unavailable("gpt2"):
        pytest.skip(reason)
    [result] = run_rounds([contender], Job((corpus,), "gpt2", 2, tmp_path, VOCAB_SIZE), 1, 60, lambda *_: None)
    assert result.error is None
    assert result.step_seconds is not None


def test_vocab_size_has_a_default_where_it_applies(corpus: Path) -> None:
    sizes = {
        name: bench.make_parser().parse_args([name, "--input", str(corpus)]).vocab_size
        for name in ("count", "merge", "train")
    }
    assert sizes == {"count": 0, "merge": 32000, "train": 32000}


def test_the_slow_backend_takes_part_only_on_request() -> None:
    for subject in (train.SUBJECT, merge.SUBJECT):
        default, _ = bench.choose(subject, None, "gpt2")
        assert "bpeflow-python" not in [contender.name for contender in default]
        chosen, _ = bench.choose(subject, "bpeflow-python", "gpt2")
        assert [contender.name for contender in chosen] == ["bpeflow-python"]


@pytest.mark.parametrize("wrong", [["--vocab_size", "257"], ["--counts", "missing.npz"], ["--input", "missing.txt"]])
def test_wrong_arguments_are_refused_before_anything_runs(wrong: list[str], corpus: Path) -> None:
    source = ["--input", str(corpus)] if wrong[0] == "--vocab_size" else []
    with pytest.raises(SystemExit, match="2"):
        bench.main(["merge", *source, *wrong])
