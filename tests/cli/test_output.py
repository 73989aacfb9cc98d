"""Broken output, and terminals of any width."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from broken_streams import KINDS, broken_stream
from screen import terminal

from bpeflow.cli.main import main


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("low lower lowest<|endoftext|>" * 40, encoding="utf-8")
    return path


@pytest.fixture
def arguments(tmp_path: Path, corpus: Path) -> list[str]:
    return ["--input", str(corpus), "--vocab_size", "260", "--out_dir", str(tmp_path / "run")]


def merges(arguments: list[str]) -> list[str]:
    return Path(arguments[-1], "merges.txt").read_text(encoding="utf-8").splitlines()[1:]


EXPECTED = ["o w", "l ow", "low e"]


# ---- broken streams ----


@pytest.mark.parametrize("kind", [*KINDS, "closed"])
def test_progress_never_ends_a_run(
    arguments: list[str], kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with broken_stream("full" if kind == "closed" else kind) as stream:
        monkeypatch.setattr("sys.stderr", None if kind == "closed" else stream)
        assert main([*arguments[:2], "--do_monitor", *arguments[2:]]) == 0
    assert merges(arguments) == EXPECTED
    assert "written" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_that_nobody_reads_does_not_undo_the_run(
    arguments: list[str], kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with broken_stream(kind) as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(arguments) == 0
    assert merges(arguments) == EXPECTED
    warning = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch("WARNING: cannot write to standard output: .*: the run is complete, but its .*", warning)


@pytest.mark.parametrize("kind", ["full", "hung-up terminal", "closed"])
@pytest.mark.parametrize("command", ["config", "backends", "--version"])
def test_output_that_was_asked_for_and_cannot_be_written_is_an_error(
    command: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with broken_stream("full" if kind == "closed" else kind) as stream:
        monkeypatch.setattr("sys.stdout", None if kind == "closed" else stream)
        assert main([command]) == 1
    assert re.fullmatch(r"bpeflow: cannot write to standard output: .*\n", capsys.readouterr().err)


def test_a_reader_that_wants_no_more_gets_no_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with broken_stream("closed pipe") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["config"]) == 128 + signal.SIGPIPE
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_interpreter_does_not_complain_at_its_end(arguments: list[str]) -> None:
    """It would flush what the streams still hold, complain, and end with status 120."""
    script = '"$0" -m bpeflow "$@" 2>/dev/full >/dev/full; echo $?; "$0" -m bpeflow config 2>&1 >/dev/full; echo $?'
    command = ["sh", "-c", script, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    error = "bpeflow: cannot write to standard output: No space left on device"
    assert done.stdout.splitlines() == ["0", error, "1"]
    assert done.stderr == ""
    assert merges(arguments) == EXPECTED


# ---- terminals ----


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_bars_stay_on_one_line(arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(columns, monkeypatch) as screen:
        assert main([*arguments, "--do_monitor", "--set", "monitor.interval=0.01", "--set", "executor=threads"]) == 0
    drawn = [line for line in screen.lines if "━" in line]
    assert {line.split()[0] for line in drawn} == {"counting", "learning"}
    assert all(re.match(r" *(counting|learning) [━╸╺]+ +\d+% \d.*$", line) for line in drawn), drawn
    assert max(map(len, drawn)) <= columns
    assert screen.raw.count("\x1b[?25l") == screen.raw.count("\x1b[?25h") == 1, "the cursor is shown again"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_never_cut_a_figure(
    arguments: list[str], columns: int, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*arguments, "--quiet"]) == 0
    run = arguments[-1]
    flags = ["--tokenizer", run, "--input", str(corpus)]
    with terminal(columns, monkeypatch) as screen:
        assert main(["evaluate", *flags]) == 0
    table = [line for line in screen.lines if "encoding" not in line]
    assert max(map(len, table)) <= columns
    shown = " ".join(table)
    for heading in ("bytes/token", "tokens/word", "single bytes", "used", "one thread"):
        assert heading in shown
    assert "corpus.txt" in shown and str(corpus) not in shown
    assert "…" not in shown

    with terminal(columns, monkeypatch) as screen:
        assert main(["compare", "--counts", run, "--backends", "python"]) == 0
    assert max(map(len, screen.lines)) <= columns
    assert re.search("visited.*merged.*stale pops.*pairs.*tables", " ".join(screen.lines))
    assert "…" not in " ".join(screen.lines)


# ---- what is said ----


def test_each_invalid_setting_is_a_line(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--vocab_size", "3", "--set", "tie_break=a\nb", "--set", "memory_limit=1mb"]
    assert main(["--input", str(corpus), *flags]) == 2
    lines = sorted(capsys.readouterr().err.splitlines())
    assert [line[: line.index(": ", 9)] for line in lines] == [
        "bpeflow: memory_limit", "bpeflow: tie_break", "bpeflow: vocab_size",
    ]  # fmt: skip
    assert lines[0].startswith("bpeflow: memory_limit: must be at least 16mb, found '1mb'")


def test_compressed_input_has_one_rate(arguments: list[str], corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compressed = gzip.compress(os.urandom(3000).hex().encode())
    corpus.with_suffix(".gz").write_bytes(compressed)
    assert main(["--input", str(corpus.with_suffix(".gz")), *arguments[2:]]) == 0
    shown = capsys.readouterr()
    kilobytes = f"{len(compressed) / 1000:.1f} kB"
    assert f"counting: {kilobytes} of {kilobytes}" in shown.err
    assert f"6.0 kB of text in 1 file of {kilobytes} and 1 document" in shown.out
    assert re.search(r"counting.* [kM]?B/s of input", shown.out)


def test_a_long_repeated_token_is_counted_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "spaces"
    corpus.write_text(" " * 4096, encoding="utf-8")
    assert main(["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(tmp_path / "run")]) == 0
    assert re.search(r"the longest has [\d,]+ bytes: ' ' × \d+\n", capsys.readouterr().out)


def test_the_size_of_a_mixture_is_that_of_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Streams are read by stages of their own, and segments with and without them are counted one after another."""
    plain, packed = tmp_path / "plain.txt", tmp_path / "packed.jsonl.gz"
    plain.write_text("the same few words again\n" * 2000, encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": f"other words {number}"}) + "\n" for number in range(3000))
    arguments = ["--input", str(plain), str(packed), "--vocab_size", "300", "--segment_size", "20kb"]
    assert main([*arguments, "--out_dir", str(tmp_path / "run"), "--executor", "processes"]) == 0
    kilobytes = f"{(plain.stat().st_size + packed.stat().st_size) / 1000:.1f} kB"
    assert f"in 2 files of {kilobytes} and " in capsys.readouterr().out
