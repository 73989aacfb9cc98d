"""The command line: its flags, its output, its exit status, and its files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from screen import screen_of

from bpeflow.backends import BACKENDS
from bpeflow.cli.main import main
from bpeflow.counting.counts import PretokenCounts


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def settings_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]  # type: ignore[no-any-return]


def test_a_config_trains(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config)]) == 0
    assert names(tmp_path / "run") == ["bpeflow.json", "counts.npz", "merges.txt", "run.json", "vocab.json"]
    out, err = capsys.readouterr()
    assert "280 tokens; the longest has" in out
    assert "vocab.json, merges.txt, bpeflow.json, run.json" in out
    assert "counting: 1.7 kB of 1.7 kB" in err
    assert "learning: 23 of 23 merges" in err
    assert "\x1b" not in out + err  # plain lines without a terminal


def test_flags_override_the_config(config: Path, tmp_path: Path) -> None:
    flags = "--vocab_size 270 --backend python -c 2 -m 3 --chunk_size 1kb"
    flags += " --set monitor.interval=3 --set tie_break=smallest_ids"
    assert main(["--config", str(config), *flags.split(), "--out_dir", str(tmp_path / "other"), "--quiet"]) == 0
    settings = settings_of(tmp_path / "other")
    assert (settings["vocab_size"], settings["backend"], settings["chunk_size"]) == (270, "python", 1000)
    assert (settings["num_counter"], settings["num_merger"], settings["tie_break"]) == (2, 3, "smallest_ids")
    assert settings["monitor"] == {"enabled": False, "interval": 3.0}
    assert not (tmp_path / "run").exists()


def test_no_config_is_needed_and_dashes_work(corpus: Path, tmp_path: Path) -> None:
    assert main(["--input", str(corpus), "--vocab-size=260", "--out-dir", str(tmp_path / "run"), "--quiet"]) == 0
    assert settings_of(tmp_path / "run")["vocab_size"] == 260


def test_quiet_prints_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config), "--quiet", "--vocab_size", "100000"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_monitor_prints_queue_depths(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config), "--do_monitor", "--set", "monitor.interval=0.1"]) == 0
    assert re.search(
        r"^[\d:]{8} chunk_queue: \d+, counter_queue: \d+, merged_queue: \d+ \|",
        *(capsys.readouterr().err, re.MULTILINE),
    )
    assert "monitor.jsonl" in names(tmp_path / "run")


def test_counts_are_merged_again_without_counting(
    config: Path, tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    assert main(["--config", str(config), "--skip_merge", "--set", "special_tokens=[<|endoftext|>, <pad>]"]) == 0
    assert names(run) == ["counts.npz", "run.json"]
    corpus.unlink()
    assert main(["merge", "--counts", str(run)]) == 0
    assert names(run) == ["bpeflow.json", "counts.npz", "merges.txt", "run.json", "vocab.json"]
    assert "280 tokens" in capsys.readouterr().out
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["corpus"]["documents"] == 40
    assert main(["merge", "--counts", str(run), "--vocab_size", "262", "--out_dir", str(other)]) == 0
    assert names(other) == ["bpeflow.json", "merges.txt", "run.json", "vocab.json"]
    ids = json.loads((other / "vocab.json").read_text(encoding="utf-8"))
    assert (len(ids), ids["<pad>"]) == (262, 257)
    summary = capsys.readouterr().out
    assert f"counts   {run / 'counts.npz'}, of an earlier run\n" in summary
    assert "counting" not in summary


def test_counts_travel_as_tsv(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config), "--skip_merge", "--quiet"]) == 0
    counts = tmp_path / "run" / "counts.npz"
    for source, path in ((counts, tmp_path / "counts.tsv"), (counts.parent, tmp_path / "again.npz")):
        assert main(["counts", str(source), str(path)]) == 0
        assert PretokenCounts.read(path) == PretokenCounts.load(counts)
        assert "distinct pre-tokens" in capsys.readouterr().out
        out = str(tmp_path / path.suffix)
        assert main(["merge", "--counts", str(path), "--vocab_size", "270", "--out_dir", out]) == 0


def test_help_lists_all_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["train", "--help"],
        ["merge", "--help"],
        ["compare", "--help"],
        ["counts", "--help"],
        ["backends", "--help"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
    text = capsys.readouterr().out
    flags = "--config --backend --vocab_size --num_counter -c --num_merger -m --chunk_size --do_monitor --skip_merge"
    flags += " --memory_limit --out_dir --set --quiet --counts --init_from --backends --rounds"
    for flag in flags.split():
        assert flag in text
    assert max(map(len, text.splitlines())) <= 120


def test_config_prints_every_setting_and_the_values_of_a_config(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--print"]) == 0
    printed = capsys.readouterr().out
    assert "Default: one process, or a thread\n# per counter.\n# num_merger: 2\n" in printed
    assert yaml.safe_load(printed) is None
    assert main(["config", "--print", "--config", str(config)]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values == yaml.safe_load(config.read_text(encoding="utf-8"))


def test_backends_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^ ?{backend.name} ", out, re.MULTILINE) for backend in BACKENDS)
    best = next(backend.name for backend in BACKENDS if backend.unavailable() is None)
    assert re.search(rf"^backend: auto +selects {best} *$", out, re.MULTILINE)


@pytest.mark.slow
def test_a_terminal_gets_progress_bars(config: Path) -> None:
    screen = screen_of("--config", str(config))
    assert b"counting" in screen
    assert b"learning" in screen
    assert b"\x1b[" in screen


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bpeflow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
def test_names_and_tokens_that_the_locale_cannot_show_do_no_harm(tmp_path: Path) -> None:
    source = os.fsencode(tmp_path) + b"/text \xff\n.txt"
    Path(os.fsdecode(source)).write_text("───── ─────", encoding="utf-8")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    out = tmp_path / "run"
    done = run("--input", os.fsdecode(source), "--vocab_size", "262", "--out_dir", str(out), env=plain)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert r"\u2500" in done.stdout
    report = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert os.fsencode(report["settings"]["input"][0]) == source


def test_files_are_listed_by_folder(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config), "--set", "vocab_sizes=[260, 270]"]) == 0
    *_, whole, small = capsys.readouterr().out.splitlines()
    assert whole == f"written  {tmp_path / 'run'}: counts.npz, vocab.json, merges.txt, bpeflow.json, run.json"
    assert small == f"         {tmp_path / 'run' / 'vocab_260'}: vocab.json, merges.txt, bpeflow.json"


def test_other_commands_replace_no_file_of_a_run_but_the_page(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert (
        main(["--config", str(config), "--quiet", "--set", "vocab_size=null", "--set", "vocab_sizes=[270, 280]"]) == 0
    )
    page = ["show", str(run), "low", "--overwrite", "--html"]
    text = ["decode", "--tokenizer", str(run), "--input", "missing.bin", "--overwrite", "--out"]
    for name in ("run.json", "counts.npz", "vocab.json", "merges.txt", "bpeflow.json", "vocab_270/vocab.json"):
        before = (run / name).read_bytes()
        assert main([*text, str(run / name)]) == 2
        assert f"{run / name}: a file of a training run is not replaced; name another file" in capsys.readouterr().err
        assert (run / name).read_bytes() == before
    (run / "report.html").write_text("earlier")
    assert main([*page, str(run / "report.html")]) == 0


def test_a_second_run_leaves_nothing_of_the_first(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["--config", str(config), "--quiet", "--do_monitor", "--set", "vocab_sizes=[260, 270]"]) == 0
    assert "vocab_260" in names(out)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    assert main(["--config", str(config), "--quiet", "--skip_merge", "--overwrite"]) == 0
    assert names(out) == ["counts.npz", "notes.txt", "run.json"]


def test_an_interrupted_second_run_leaves_the_first_one_and_its_own_counts(
    config: Path, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert main(["--config", str(config), "--quiet"]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    corpus.write_text("something else", encoding="utf-8")
    interrupted = ["--config", str(config), "--quiet", "--overwrite", "--set", "special_tokens=[aa, bb]"]

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bpeflow.training.train.learn_with_settings", interrupt)
        assert main(interrupted) == 130
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert names(out / "unfinished") == ["counts.npz", "run.json", "settings.json"]
    assert settings_of(out / "unfinished")["special_tokens"] == ["aa", "bb"]
    assert main(["merge", "--counts", str(out), "--quiet"]) == 0
    assert names(out) == sorted(before)
    assert settings_of(out)["special_tokens"] == ["aa", "bb"]
    assert json.loads((out / "vocab.json").read_text(encoding="utf-8"))["bb"] == 257


def test_merge_keeps_the_description_of_the_counts(config: Path, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "run"
    assert main(["--config", str(config), "--quiet"]) == 0
    before = json.loads((out / "run.json").read_text(encoding="utf-8"))
    config.write_text(config.read_text(encoding="utf-8") + "skip_merge: true\n", encoding="utf-8")
    assert main(["merge", "--counts", str(out), "--config", str(config), "--vocab_size", "270", "--quiet"]) == 0
    assert json.loads((out / "run.json").read_text(encoding="utf-8")) == before
    after = json.loads((tmp_path / "run-270" / "run.json").read_text(encoding="utf-8"))
    assert (after["corpus"], after["counting"]) == (before["corpus"], before["counting"])
    assert after["settings"]["input"] == [str(corpus)]
    assert after["counts"] == str(out / "counts.npz")
    assert after["files"] == ["vocab.json", "merges.txt", "bpeflow.json"]
    assert after["learning"]["vocab_size"] == 270


def test_home_is_expanded_in_the_run_folder(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--config", str(config), "--out_dir", "~/mine", "--quiet"]) == 0
    assert "vocab.json" in names(tmp_path / "mine")


def test_the_command_line_works_outside_the_main_thread(config: Path) -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(main(["--config", str(config), "--quiet"])))
    thread.start()
    thread.join()
    assert statuses == [0]
