"""`thin_rare`: in every way of learning, recorded, and apart from counting, whose counts stay exact."""

from __future__ import annotations

import json
import weakref
from pathlib import Path

import pytest
from distinct_words import write_corpus

import bpeflow
from bpeflow import PretokenCounts
from bpeflow.backends import BACKENDS
from bpeflow.cli.main import main
from bpeflow.errors import ResumeError
from bpeflow.keywords import ThinRareKeywords
from bpeflow.progress import Observer
from bpeflow.run_dir import run_files
from bpeflow.training import learn as merging

FLAGS = ["--thin_rare", "below=5,keep=0.1"]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    return str(write_corpus(tmp_path / "corpus"))


def train(corpus: str, out: Path, *flags: str) -> dict[str, object]:
    assert main(["train", "--input", corpus, "--vocab_size", "330", "--out_dir", str(out), *flags]) == 0
    report: dict[str, object] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return report


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("vocab.json", "merges.txt")]


def test_a_run_records_it_and_keeps_exact_counts(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, thinned = train(corpus, tmp_path / "exact"), train(corpus, tmp_path / "thinned", *FLAGS)
    assert files(tmp_path / "exact") != files(tmp_path / "thinned")
    counts = PretokenCounts.load(tmp_path / "thinned" / "counts.npz")
    assert counts == PretokenCounts.load(tmp_path / "exact" / "counts.npz")
    kept = counts.thin(below=5, keep=0.1)
    said = f"thin_rare: from {len(kept):,} of {len(counts):,} distinct pre-tokens"
    assert said in capsys.readouterr().out
    learning = [report["learning"] for report in (exact, thinned)]
    assert [part["thinned"] for part in learning] == [  # type: ignore[index]
        None,
        {
            "pretokens": len(counts),
            "positions": len(counts.data),
            "kept_pretokens": len(kept),
            "kept_positions": len(kept.data),
        },
    ]
    assert learning[1]["backend"]["words"] == len(kept)  # type: ignore[index]
    assert thinned["settings"]["thin_rare"] == {"below": 5, "keep": 0.1}  # type: ignore[index]
    fingerprint = json.dumps([report["counting"]["fingerprint"] for report in (exact, thinned)])  # type: ignore[index]
    assert "thin_rare" not in fingerprint


def test_every_way_of_learning_has_it(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counting in segments and chunks of any size, learning from saved counts, and functions."""
    train(corpus, tmp_path / "thinned", *FLAGS, "--set", "segment_size=5kb", "--set", "chunk_size=1kb", "-c", "2")
    train(corpus, tmp_path / "exact")
    counts = str(tmp_path / "exact")
    assert main(["merge", "--counts", counts, *FLAGS, "--out_dir", str(tmp_path / "merged")]) == 0
    assert files(tmp_path / "merged") == files(tmp_path / "thinned")
    exactly = ["--set", "thin_rare=null", "--out_dir", str(tmp_path / "exactly")]
    assert main(["merge", "--counts", str(tmp_path / "thinned"), *exactly]) == 0
    assert files(tmp_path / "exactly") == files(tmp_path / "exact")
    capsys.readouterr()
    assert main(["compare", "--counts", counts, *FLAGS, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    saved = PretokenCounts.load(tmp_path / "exact" / "counts.npz")
    assert {contender["words"] for contender in figures["contenders"]} == {len(saved.thin(5, 0.1))}
    special = ["<|endoftext|>"]
    thin: ThinRareKeywords = {"below": 5, "keep": 0.1}
    _, merges = bpeflow.train_bpe(corpus, 330, special, thin_rare=thin)
    learned = bpeflow.learn_merges(saved, 330, special, thin_rare=thin)
    assert list(learned) == merges == list(bpeflow.Tokenizer.load(tmp_path / "thinned").vocab.merges)


def test_learning_resumes_with_the_same_value_only(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"input": corpus, "vocab_size": 330, "out_dir": tmp_path / "run", "thin_rare": "below=5,keep=0.1"}
    unbroken = bpeflow.train({**settings, "out_dir": tmp_path / "unbroken"})
    with monkeypatch.context() as patch:
        patch.setattr(merging, "FIRST_STEP", 16)
        patch.setattr(run_files, "INTERVAL", 0.0)
        patch.setattr(merging.LearnedMerges, "__init__", None)
        with pytest.raises(TypeError):
            bpeflow.train(settings)
    changes = {r"\.keep: 0\.1 → 0\.5": {"below": 5, "keep": 0.5}, r": \{'below': 5, 'keep': 0\.1\} → null": None}
    for said, other in changes.items():
        with pytest.raises(ResumeError, match=f"thin_rare{said}"):
            bpeflow.train({**settings, "resume": True, "thin_rare": other})
    resumed = bpeflow.train({**settings, "resume": True})
    assert resumed.learned is not None
    assert resumed.learned.resumed > 0
    assert resumed.merges == unbroken.merges


def test_it_can_be_given_after_counting(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the warning before learning recommends."""
    train(corpus, tmp_path / "thinned", *FLAGS)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("bpeflow.training.train.learn_with_settings", fail)
        with pytest.raises(ZeroDivisionError):
            bpeflow.train({"input": corpus, "vocab_size": 330, "out_dir": tmp_path / "run"})
    assert main(["train", "--out_dir", str(tmp_path / "run"), "--resume", *FLAGS]) == 0
    assert files(tmp_path / "run") == files(tmp_path / "thinned")


@pytest.mark.parametrize(
    "backend", [own.name for own in BACKENDS if own.name != "python" and own.unavailable() is None]
)
def test_thinned_counts_are_freed_before_the_first_merge(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thin, kept, alive = PretokenCounts.thin, [], []

    def watched(counts: PretokenCounts, below: int, keep: float) -> PretokenCounts:
        thinned = thin(counts, below, keep)
        kept.append(weakref.ref(thinned.data))
        return thinned

    class Watching(Observer):
        def learning(self, learned: int, wanted: int) -> None:
            alive.append(kept[0]() is not None)

    monkeypatch.setattr(PretokenCounts, "thin", watched)
    words = {f"{a}{b}": 1 for a in "abcdefgh" for b in "stuvwxyz"}
    bpeflow.learn_merges(words, 260, thin_rare={"below": 5, "keep": 0.5}, backend=backend, observer=Watching())
    assert alive
    assert not any(alive)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("5", "thin_rare: need below=N,keep=FRACTION, such as below=5,keep=0.1, found '5'"),
        ("below=5", "need below=N,keep=FRACTION, such as below=5,keep=0.1, found 'below=5'"),
        ("below=5,keep=0.4", "thin_rare.keep: need one divided by a whole number"),
        ("belo=5,keep=1", "unknown setting thin_rare.belo (did you mean thin_rare.below?)"),
    ],
)
def test_other_values_are_refused(
    value: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], corpus: str
) -> None:
    flags = ["--input", corpus, "--vocab_size", "300", "--out_dir", str(tmp_path / "run"), "--thin_rare", value]
    assert main(["train", *flags]) == 2
    assert said in capsys.readouterr().err
