"""Merges are saved while they are learned, and a run that resumes from them ends with the same result."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow.backends.base import MergeBackend
from bpeflow.cli.main import main
from bpeflow.errors import ResumeError
from bpeflow.run_dir import run_files
from bpeflow.run_dir.layout import CHECKPOINT_FILE
from bpeflow.training import learn as merging


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def settings_of(corpus: Path, out: Path, **options: object) -> dict[str, object]:
    return {"input": str(corpus), "vocab_size": 330, "out_dir": str(out), "backend": "python", **options}


RESULTS = ("counts.npz", "vocab.json", "merges.txt", "bpeflow.json")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, object]], None]]:
    """Train until some merges are saved, then fail."""

    def train(settings: dict[str, object]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(merging, "FIRST_STEP", 16)
            patch.setattr(run_files, "INTERVAL", 0.0)
            patch.setattr(merging.LearnedMerges, "__init__", None)
            with pytest.raises(TypeError):
                bpeflow.train(settings)

    yield train


@pytest.mark.parametrize("base", ["", "tokenizer.json"])
def test_learning_resumes_from_a_checkpoint(
    corpus: Path, tmp_path: Path, backend: MergeBackend, stopped: Callable[[dict[str, object]], None], base: str
) -> None:
    formats = {"output": {"formats": ["huggingface"]}}
    bpeflow.train(settings_of(corpus, tmp_path / "base", vocab_size=280, special_tokens_first=True, **formats))
    settings = settings_of(corpus, tmp_path / "run", init_from=tmp_path / "base" / base, backend=backend.name)
    unbroken = bpeflow.train({**settings, "out_dir": tmp_path / "unbroken"})
    stopped(settings)
    with pytest.raises(ResumeError, match=r"has an unfinished run \(counts\.npz and merges\.partial\)"):
        bpeflow.train(settings)
    result = bpeflow.train({**settings, "resume": True})
    assert result.learned is not None and unbroken.learned is not None
    assert (result.learned.pairs, result.learned.counts) == (unbroken.learned.pairs, unbroken.learned.counts)
    assert result.vocab == unbroken.vocab
    report = result.report.learning
    assert (report.replayed, report.learned) == (23, 50)
    assert 10 < report.resumed < 73
    assert not (tmp_path / "run" / "unfinished").exists()


def test_the_merge_command_resumes_from_a_checkpoint_too(
    corpus: Path, tmp_path: Path, stopped: Callable[[dict[str, object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(corpus, tmp_path / "run")
    stopped(settings)
    assert main(["merge", "--counts", str(tmp_path / "run")]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["merge", "--counts", str(tmp_path / "run"), "--resume"]) == 0
    assert " of them resumed (" in capsys.readouterr().out
    bpeflow.train({**settings, "out_dir": tmp_path / "unbroken"})
    for name in RESULTS:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()


def test_a_checkpoint_of_another_run_is_refused_and_a_damaged_one_ignored(
    corpus: Path,
    tmp_path: Path,
    stopped: Callable[[dict[str, object]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = settings_of(corpus, tmp_path / "run")
    stopped(settings)
    partial = tmp_path / "run" / "unfinished" / CHECKPOINT_FILE
    caplog.set_level(logging.INFO)
    with pytest.raises(ResumeError, match=r"merges\.partial is of a run with other settings: min_frequency: 1"):
        bpeflow.train({**settings, "resume": True, "min_frequency": 3})
    assert not caplog.records  # nothing is said to be resumed
    bpeflow.train(settings_of(corpus / "a", tmp_path / "other", skip_merge=True))
    (tmp_path / "other" / "unfinished").mkdir()
    shutil.copy(partial, tmp_path / "other" / "unfinished")
    with pytest.raises(ResumeError, match="was learned from other counts"):
        bpeflow.train(settings_of(corpus / "a", tmp_path / "other", resume=True))
    partial.write_text(partial.read_text().replace("77", "78", 1))
    result = bpeflow.train({**settings, "resume": True})
    assert "merges.partial is damaged" in caplog.text
    assert f"{tmp_path}/run: the corpus is already counted" in caplog.text
    assert result.report.learning.resumed == 0
    assert not partial.exists()
