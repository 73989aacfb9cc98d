"""A run is resumed by its folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bpeflow
from bpeflow._util.atomic import checksummed, verified
from bpeflow.cli.main import main
from bpeflow.counting.segments import SegmentPlan
from bpeflow.errors import BpeflowError, ResumeError
from bpeflow.run_dir.layout import REPORT_FILE, SETTINGS_FILE, UNFINISHED
from bpeflow.run_dir.resume import how_to_continue

RESULTS = ("counts.npz", "vocab.json", "merges.txt", "bpeflow.json")
INTERRUPTED = {
    "before counting": "bpeflow.counting.count.CorpusCounter.count",
    "while segments are counted": "bpeflow.counting.segments.SegmentPlan.end_after",
    "while learning": "bpeflow.training.train.learn_with_settings",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("low low lower newest newest widest<|sep|>" * 30, encoding="utf-8")
    return path


def settings_of(corpus: Path, out: Path) -> dict[str, object]:
    return {
        "input": str(corpus), "vocab_sizes": [262, 264], "pattern": "cl100k", "special_tokens": ["<|sep|>", "<pad>"],
        "special_tokens_first": True, "segment_size": 300, "tie_break": "smallest_ids", "backend": "python",
        "out_dir": str(out),
    }  # fmt: skip


def interrupt(settings: dict[str, object], at: str, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Train until a function is called; that which ends segments, for the third time."""
    end_after, calls = SegmentPlan.end_after, []

    def fail(*arguments: object, **_: object) -> object:
        calls.append(arguments)
        if at == "while segments are counted" and len(calls) < 3:
            return end_after(*arguments)  # type: ignore[arg-type]
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(INTERRUPTED[at], fail)
        with pytest.raises(error):
            bpeflow.train(settings)


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*RESULTS, "vocab_262/vocab.json")}


@pytest.mark.parametrize("over_another", [False, True])
@pytest.mark.parametrize("at", INTERRUPTED)
def test_it_ends_with_the_same_bytes(
    corpus: Path, tmp_path: Path, at: str, over_another: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    bpeflow.train(settings_of(corpus, tmp_path / "unbroken"))
    settings = settings_of(corpus, tmp_path / "run")
    if over_another:
        bpeflow.train({"input": iter(["other"]), "vocab_size": 257, "out_dir": tmp_path / "run"})
        settings["overwrite"] = True
    interrupt(settings, at)
    assert main(["--resume", "--out_dir", str(tmp_path / "run"), "--backend", "c", "-c", "1"]) == 0
    assert results(tmp_path / "run") == results(tmp_path / "unbroken")
    assert not (tmp_path / "run" / UNFINISHED).exists()
    capsys.readouterr()
    again = bpeflow.train({"out_dir": tmp_path / "run", "resume": True})
    assert again.learned is None
    assert again.vocab is not None


def test_resuming_without_a_folder_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--resume"]) == 2
    assert "resume: give out_dir, the folder of the run" in capsys.readouterr().err
    assert main(["--resume", "--out_dir", "run", "--input", "a.txt"]) == 2
    assert "vocab_size is missing" in capsys.readouterr().err


def test_flags_that_do_not_agree_are_refused(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    interrupt(settings_of(corpus, run), "while segments are counted")
    assert main(["--resume", "--out_dir", str(run), "--set", "pattern=gpt2"]) == 2
    err = capsys.readouterr().err
    assert "counts something else (pattern: " in err
    assert "resuming" not in err
    assert main(["--resume", "--out_dir", str(run)]) == 0
    assert main(["--resume", "--out_dir", str(run), "--vocab_size", "300"]) == 2
    assert "vocab_size: [262, 264] → 300" in capsys.readouterr().err


def test_a_run_that_fails_with_nothing_to_resume_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    interrupt(settings_of(corpus, tmp_path / "run"), "before counting", MemoryError)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ResumeError, match=r"run has no run to resume: .*at least its input and vocab_size"):
        bpeflow.train({"out_dir": tmp_path / "run", "resume": True})


def test_settings_are_complete_or_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, input that can be read only once, and a damaged record are recognised."""
    monkeypatch.chdir(tmp_path)
    own = {"out_dir": str(tmp_path / "run"), "resume": True}
    interrupt(settings_of(Path(corpus.name), tmp_path / "run"), "before counting")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ResumeError, match=r"was started in .*relative paths"):
        bpeflow.train(own)
    monkeypatch.chdir(tmp_path)
    assert bpeflow.train(own).vocab is not None

    record = tmp_path / "once" / UNFINISHED / SETTINGS_FILE
    documents = {**settings_of(corpus, tmp_path / "once"), "input": iter(["low"])}
    interrupt(documents, "while learning")
    with pytest.raises(ResumeError, match="can be read only once"):
        bpeflow.train({**own, "out_dir": str(tmp_path / "once")})
    record.write_text(record.read_text().replace("cl100k", "gpt2"))
    with pytest.raises(ResumeError, match=r"settings\.json: damaged"):
        bpeflow.train({**own, "out_dir": str(tmp_path / "once")})


def test_a_run_of_another_version_is_refused(corpus: Path, tmp_path: Path) -> None:
    interrupt(settings_of(corpus, tmp_path / "run"), "before counting")
    path = tmp_path / "run" / UNFINISHED / SETTINGS_FILE
    record = verified(json.loads(path.read_text(encoding="utf-8")))
    record["settings"]["small_input"] = None
    path.write_text(json.dumps(checksummed(record)), encoding="utf-8")
    with pytest.raises(ResumeError, match=r"begun by another version of bpeflow, .*\(small_input\): start over"):
        bpeflow.train({"out_dir": str(tmp_path / "run"), "resume": True})


def test_a_merge_from_other_counts_is_resumed_by_its_folder_alone(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bpeflow.train(settings_of(corpus, tmp_path / "run"))

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(INTERRUPTED["while learning"], kill)
        assert main(["merge", "--counts", str(tmp_path / "run"), "--vocab_size", "263"]) == 130
    with pytest.raises(ResumeError, match=f"resume it with bpeflow merge --counts {tmp_path}/run/counts.npz --resume"):
        bpeflow.train({"out_dir": tmp_path / "run-263", "resume": True})
    assert main(["--resume", "--out_dir", str(tmp_path / "run-263")]) == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run-263").vocab_size == 263
    for command in ([], ["merge"]):
        capsys.readouterr()
        assert main([*command, "--resume", "--out_dir", str(tmp_path / "run-263")]) == 0
        shown = capsys.readouterr()
        assert "run-263 is finished: nothing left to do" in shown.err
        assert "WARNING" not in shown.err
        assert "kept " in shown.out
    report = json.loads((tmp_path / "run-263" / "run.json").read_text(encoding="utf-8"))
    assert report["counts"] == str(tmp_path / "run" / "counts.npz")


def test_a_damaged_finished_report_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(BpeflowError, match=r"run\.json: damaged, or changed after the run: "):
        bpeflow.train({"out_dir": tmp_path, "resume": True})


def test_changed_settings_apply(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    interrupt({**settings_of(corpus, run), "vocab_sizes": 264}, "while segments are counted")
    assert main(["--resume", "--out_dir", str(run), "--vocab_size", "262"]) == 0
    assert len(bpeflow.Tokenizer.load(run).vocab) == 262


def test_an_interruption_leaves_a_finished_run(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bpeflow.train(settings_of(corpus, tmp_path))
    before = results(tmp_path)

    def fail(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("bpeflow.training.train.find_counts", fail)
    assert main(["--resume", "--out_dir", str(tmp_path)]) == 130
    err = capsys.readouterr().err
    assert f"{tmp_path} has a finished run, which is as it was" in err
    assert "nothing of this run is kept" not in err
    assert results(tmp_path) == before


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("before counting", "nothing of this run is kept, so it must start from the beginning"),
        ("while learning", "to continue: bpeflow --resume --out_dir "),
    ],
)
def test_an_interrupted_command_says_how_to_continue(
    corpus: Path,
    tmp_path: Path,
    at: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    monkeypatch.setattr(INTERRUPTED[at], fail)
    assert main(["--input", str(corpus), "--vocab_size", "300", "--out_dir", str(run)]) == 130
    *_, hint, last = capsys.readouterr().err.splitlines()
    assert said in hint
    assert (str(run) in hint, last) == (True, "bpeflow: interrupted")
    monkeypatch.undo()
    if at == "before counting":
        (run / REPORT_FILE).touch()
        assert "and the finished run there is as it was" in how_to_continue(run)
    if at == "while learning":
        assert main(hint.partition("to continue: bpeflow ")[2].split()) == 0
