"""Errors of commands: one line, a status, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bpeflow._util import native
from bpeflow.backends import BACKENDS
from bpeflow.cli.main import main
from bpeflow.counting.counts import PretokenCounts
from bpeflow.run_dir.lock import RunLock


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--input", "no-such-file.txt"], "no-such-file.txt"),
        (["--input", "no/such/*.txt"], r"no/such/\*.txt"),
        (["--vocab_size", "256"], "vocab_size 256 is too small"),
        (["--vocab_size", "many"], "vocab_size: need a whole number such as 32000, 32k or 1m, found 'many'"),
        (["--pattern", "("], r"pattern '\(' is an invalid regular expression: missing \)"),
        (["--set", "pattern=gtp2"], "gpt2"),
        (["--set", "vocab_sise=3"], "did you mean vocab_size"),
        (["--set", "vocab_size"], "need KEY=VALUE"),
        (["--backend", "fortran"], "unknown backend 'fortran'"),
        (["--chunk_size", "8 elephants"], "chunk_size"),
        (["--config", "none.yaml"], "cannot read the config none.yaml"),
        (["--backend_name", "c"], "--backend_name"),
        (["--init_from", "none"], "none: no such file or folder"),
        (["--out_dir", "/proc/run"], "/proc/run"),
    ],
    ids=str,
)
def test_an_error_is_one_clear_line_and_status_2(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    try:
        status = main(flags if "--config" in flags else ["--config", str(config), *flags])
    except SystemExit as exit_:  # from argparse
        status = exit_.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert status == 2
    assert re.search(complaint, err)
    assert out == ""
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if not line.startswith("usage")]) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_one_line_without_advice_to_resume(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    with RunLock(tmp_path / "run"):
        assert main(["--config", str(config)]) == 1
    assert re.fullmatch(r"bpeflow: another run is at work in .*\n", capsys.readouterr().err)


def test_an_unwritable_folder_is_refused(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert main(["--config", str(config), "--out_dir", str(folder)]) == 2
    assert "no permission" in capsys.readouterr().err


def test_a_missing_out_dir_is_asked_for(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--input", str(corpus), "--vocab_size", "300"]) == 2
    assert "--out_dir" in capsys.readouterr().err


def test_text_that_is_not_utf8_is_status_2_with_its_position(
    config: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write_bytes(b"abc\xff")
    assert main(["--config", str(config)]) == 2
    assert "corpus.txt is not UTF-8 at byte 3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with_full_disk = subprocess.run(
        [sys.executable, "-m", "bpeflow", "--config", str(config), "--quiet"],
        preexec_fn=_no_room_for_files,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert with_full_disk.returncode == 1
    written = run / "unfinished" / "settings.json"
    assert with_full_disk.stderr.startswith(f"bpeflow: {written}: File too large; a limit of file sizes")
    assert names(run) == []


def _no_room_for_files() -> None:
    """Simulate a full disk: the kernel refuses to write beyond 1,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_an_unavailable_backend_says_why_and_what_to_do(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "native"
    empty.mkdir()
    (empty / "build.json").write_text('{"missing": {"omp": "no compiler was found: install one"}}', encoding="utf-8")
    monkeypatch.setattr(native, "library_folders", lambda: [empty])
    native.load_library.cache_clear()  # as in a fresh process
    for backend in BACKENDS:
        vars(backend).pop("library", None)
    assert main(["backends"]) == 0
    assert "no compiler was found" in capsys.readouterr().out
    assert main(["--config", str(config), "--backend", "omp"]) == 2
    assert (
        "backend omp is not available: no compiler was found: install one, then reinstall bpeflow. "
        "Available here: python (or --backend auto)" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()
    assert main(["--config", str(config), "--quiet"]) == 0
    assert json.loads((tmp_path / "run/run.json").read_text("utf-8"))["learning"]["backend"]["name"] == "python"


def test_merge_refuses_what_it_cannot_change(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["--config", str(config), "--quiet"]) == 0
    assert main(["merge", "--counts", str(out), "--set", "pattern=cl100k"]) == 2
    assert "pattern concerns counting" in capsys.readouterr().err
    assert main(["merge", "--counts", str(out), "--special_tokens", "<|x|>", "--out_dir", str(tmp_path / "x")]) == 0
    warning = "WARNING: special_tokens: '<|endoftext|>' is not among them, but left out of the counts, so"
    assert warning in capsys.readouterr().err
    PretokenCounts.from_mapping({"other": 1}).save(out / "counts.npz")
    assert main(["merge", "--counts", str(out)]) == 2
    assert "describes other counts" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--set", "monitor=3", "--do_monitor"],
        ["--set", "input.x=1"],
        ["--set", "monitor.interval=.inf"],
        ["--set", "vocab_size=4294967554"],
        ["--set", "min_frequency=9223372036854775808"],
        ["--set", "max_token_length=18446744073709551618"],
        ["--set", "threads=4294967296"],
        ["--set", "special_tokens=!!set {a, b}"],
        ["--input", ""],
        ["--input", "~nobody-of-this-name/x"],
        ["--out_dir", ""],
        ["--out_dir", "a\0b"],
    ],
    ids=str,
)
def test_odd_settings_are_refused_before_any_work(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert main(["--config", str(config), *flags]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_failed_run_removes_its_empty_folder(config: Path, corpus: Path, tmp_path: Path) -> None:
    corpus.write_bytes(b"\xff")
    assert main(["--config", str(config)]) == 2
    assert not (tmp_path / "run").exists()
