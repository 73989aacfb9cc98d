"""Finished results are replaced only with `overwrite`."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import AlreadyExistsError
from bpeflow.formats import any_format as formats
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("low low lower newest newest widest", encoding="utf-8")
    return path


def train(corpus: Path, out: Path, **options: object) -> bpeflow.TrainResult:
    return bpeflow.train({"input": str(corpus), "vocab_size": 262, "backend": "python", "out_dir": out, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [{}, {"restart": True}, {"skip_merge": True}])
def test_a_second_training_is_refused_before_any_work(
    corpus: Path, tmp_path: Path, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(corpus, tmp_path / "run", pattern="cl100k", tie_break="huggingface")
    monkeypatch.setattr("bpeflow.counting.count.CorpusCounter.count", None)
    before = contents(tmp_path / "run")
    today = datetime.now(timezone.utc).date()
    message = f"/run holds a tokenizer (262 entries, pattern cl100k, written in the gpt2 format on {today}): "
    with pytest.raises(AlreadyExistsError, match=f"{re.escape(message)}.*overwrite=True to replace it"):
        train(corpus, tmp_path / "run", **options)
    assert contents(tmp_path / "run") == before


def test_overwrite_replaces_it(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", vocab_size=262)
    train(corpus, tmp_path / "run", vocab_size=264, overwrite=True)
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 264


@pytest.mark.parametrize(
    "front_door",
    [
        lambda corpus, out: bpeflow.train_bpe(corpus, 264, ["<s>"], out_dir=out),
        lambda corpus, out: bpeflow.Tokenizer.train(corpus, 264, out_dir=out),
        lambda corpus, out: main(["--input", str(corpus), "--vocab_size", "264", "--out_dir", str(out)]) / 0,
    ],
)
def test_every_front_door_refuses(corpus: Path, tmp_path: Path, front_door: object) -> None:
    train(corpus, tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises((AlreadyExistsError, ZeroDivisionError)):
        front_door(corpus, tmp_path / "run")  # type: ignore[operator]
    assert contents(tmp_path / "run") == before


def test_finished_counts_are_not_replaced_either(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", skip_merge=True)
    with pytest.raises(AlreadyExistsError, match=r"holds a finished run \(counts.npz and run.json\): use another"):
        train(corpus, tmp_path / "run")
    assert train(corpus, tmp_path / "run", resume=True).report.resumed == "counts.npz"
    with pytest.raises(AlreadyExistsError, match=r"a tokenizer \(262 entries"):
        train(corpus, tmp_path / "run", skip_merge=True)
    before = contents(tmp_path / "run")
    train(corpus, tmp_path / "run", skip_merge=True, resume=True)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("name", [known.name for known in formats.FORMATS])
@pytest.mark.parametrize("resume", [False, True])
def test_a_tokenizer_of_another_origin_is_not_replaced(corpus: Path, tmp_path: Path, name: str, resume: bool) -> None:
    formats.write(TokenizerSpec(Vocab.build([(b"a", b"b")])), tmp_path / "run", name)
    with pytest.raises(AlreadyExistsError, match=rf"run holds a tokenizer \(257 entries, .* {name} format"):
        train(corpus, tmp_path / "run", resume=resume)


def test_a_damaged_run_is_still_a_run(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(AlreadyExistsError, match=r"holds a tokenizer \(262 entries"):
        train(corpus, tmp_path / "run")


def test_restart_without_overwrite_discards_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the finished run nor the unfinished one that was to replace it."""
    train(corpus, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr("bpeflow.training.train.learn_with_settings", None)
        train(corpus, tmp_path / "run", vocab_size=263, overwrite=True)
    before = contents(tmp_path / "run")
    assert "unfinished/counts.npz" in before
    with pytest.raises(AlreadyExistsError):
        train(corpus, tmp_path / "run", restart=True)
    assert contents(tmp_path / "run") == before
    train(corpus, tmp_path / "run", restart=True, overwrite=True)
    assert not (tmp_path / "run" / "unfinished").exists()


def test_a_run_that_has_done_nothing_yet_does_not_permit_another_to_overwrite(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    train(corpus, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bpeflow.counting.count.CorpusCounter.count", interrupt)
        train(corpus, tmp_path / "run", vocab_size=263, overwrite=True)
    assert train(corpus, tmp_path / "run", resume=True).learned is None
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 262
    bpeflow.train({"out_dir": tmp_path / "run", "resume": True})
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 263


# ---- merge ----


def merge(run: Path, *flags: str) -> int:
    return main(["merge", "--counts", str(run), "--backend", "python", *flags])


def test_merge_writes_beside_a_finished_tokenizer(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("run")
    train(corpus, run)
    before = contents(run)
    assert merge(run, "--vocab_size", "260") == 0
    assert "run-260: vocab.json" in capsys.readouterr().out
    assert bpeflow.Tokenizer.load("run-260").merges == bpeflow.Tokenizer.load("run").merges[:3]
    assert merge(run, "--vocab_size", "260") == 2
    assert "run-260 holds a tokenizer (260 entries" in capsys.readouterr().err
    assert merge(run, "--vocab_size", "260", "--overwrite") == 0
    assert merge(run, "--vocab_size", "260", "--resume") == 0
    assert "nothing left to do" in capsys.readouterr().err
    assert merge(run, "--vocab_size", "260", "--out_dir", str(run)) == 2
    monkeypatch.chdir(run)
    assert merge(Path(), "--vocab_size", "261") == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run-261").vocab_size == 261
    assert contents(Path()) == before


def test_a_merge_over_its_own_run_is_resumed(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    train(corpus, tmp_path / "run")
    flags = ["--vocab_size", "263", "--out_dir", str(tmp_path / "run"), "--overwrite"]
    with monkeypatch.context() as patch:
        patch.setattr("bpeflow.training.train.learn_with_settings", interrupt)
        assert merge(tmp_path / "run", *flags) == 130
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 262
    assert merge(tmp_path / "run", "--out_dir", str(tmp_path / "run"), "--resume") == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 263


def test_merge_completes_a_run_that_only_counted(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", skip_merge=True)
    assert merge(tmp_path / "run") == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run").vocab_size == 262


def test_merge_does_not_replace_other_counts(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(corpus, tmp_path / "one", skip_merge=True)
    train(corpus, tmp_path / "other", skip_merge=True)
    for flags in ([], ["--resume"]):
        assert merge(tmp_path / "one", "--out_dir", str(tmp_path / "other"), *flags) == 2
        assert "other holds a finished run (counts.npz" in capsys.readouterr().err


def test_merge_with_overwrite_keeps_no_counts_that_it_did_not_learn_from(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "one", skip_merge=True)
    corpus.write_text("other text", encoding="utf-8")
    train(corpus, tmp_path / "other", vocab_size=257)
    assert merge(tmp_path / "one", "--out_dir", str(tmp_path / "other"), "--overwrite") == 0
    assert bpeflow.Tokenizer.load(tmp_path / "other").vocab_size == 262
    assert not (tmp_path / "other" / "counts.npz").exists()
    assert (tmp_path / "one" / "counts.npz").exists()
