"""Training with several expressions, one after another: settings, counts, runs and exports."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from peers import open_huggingface

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import AlreadyExistsError, CorpusError, ResumeError
from bpeflow.run_dir.run_files import read_report

DOCUMENTS = ["low, lower12, lowest!", "low lower; 123 low"] * 5
PATTERN = (r"\p{N}{1,2}", r" ?\p{L}+")


def train(out: Path | None = None, **options: Any) -> bpeflow.TrainResult:
    return bpeflow.train(
        {"input": iter(DOCUMENTS), "vocab_size": 265, "out_dir": out, "pattern": list(PATTERN), **options}
    )


def test_pre_tokens_are_counted_by_all_expressions() -> None:
    counts = bpeflow.count(iter(DOCUMENTS), list(PATTERN))
    expected = Counter({"low": 10, ",": 10, " lower": 10, "12": 10, " lowest": 5, "!": 5, "; ": 5, "3": 5, " low": 5})
    assert {token.decode(): count for token, count in counts.items()} == expected
    assert counts.pattern == PATTERN


def test_counts_keep_the_pattern_in_their_file(tmp_path: Path) -> None:
    counts = bpeflow.count(iter(DOCUMENTS), PATTERN)
    counts.save(tmp_path / "counts.npz")
    again = bpeflow.PretokenCounts.load(tmp_path / "counts.npz")
    assert again.pattern == PATTERN
    assert bpeflow.learn_merges(again, 265).tokenizer().pattern == PATTERN
    assert (again + counts).pattern == PATTERN


def test_a_run_and_its_exports_know_the_pattern(tmp_path: Path) -> None:
    result = train(tmp_path / "run", output={"formats": ["huggingface"]})
    report = read_report(tmp_path / "run")
    assert report is not None
    assert report.corpus is not None
    assert (report.corpus.pattern, report.settings["pattern"]) == (PATTERN, list(PATTERN))
    theirs = open_huggingface(tmp_path / "run" / "tokenizer.json")
    for tokenizer in (
        result.tokenizer,
        bpeflow.Tokenizer.load(tmp_path / "run"),
        bpeflow.Tokenizer.load(tmp_path / "run" / "tokenizer.json"),
        bpeflow.Tokenizer.from_files(tmp_path / "run" / "vocab.json", tmp_path / "run" / "merges.txt"),
    ):
        assert tokenizer.pattern == PATTERN
        for text in ("low, lower12345<|endoftext|>\n", "12low !"):
            assert tokenizer.encode(text) == theirs.encode(text).ids
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_pattern_is_compared_when_resuming_and_shown_when_overwriting(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("<|endoftext|>".join(DOCUMENTS), encoding="utf-8")
    train(tmp_path / "run", input=corpus, skip_merge=True)
    assert (
        bpeflow.train({"out_dir": tmp_path / "run", "resume": True, "skip_merge": False}).tokenizer.pattern == PATTERN
    )
    with pytest.raises(AlreadyExistsError, match=r"\\\\p\{N\}"):
        train(tmp_path / "run", input=corpus)
    with pytest.raises(ResumeError, match="pattern: "):
        train(tmp_path / "run", input=corpus, pattern="gpt2", resume=True)


def test_initial_merges_fit_the_same_pattern(tmp_path: Path) -> None:
    first = train(tmp_path / "run")
    assert train(init_from=tmp_path / "run", vocab_size=270).merges[:8] == first.merges


@pytest.mark.parametrize("unmatched", ["drop", "error"])
def test_unmatched_text(unmatched: str, caplog: pytest.LogCaptureFixture) -> None:
    if unmatched == "error":
        with pytest.raises(CorpusError, match=r"does not match ',' in 'low, lower12, lowest!'"):
            bpeflow.count(iter(DOCUMENTS), PATTERN, unmatched="error")
    else:
        counts = bpeflow.count(iter(DOCUMENTS), [r"[^,]+", r"\p{L}+"], unmatched="drop")
        assert dict(counts) == {b"low": 15, b"lower": 10, b"lowest": 5}
        assert "is matched by nothing and dropped" in caplog.text


def test_a_list_in_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, config = tmp_path / "corpus.txt", tmp_path / "config.yaml"
    corpus.write_text("<|endoftext|>".join(DOCUMENTS), encoding="utf-8")
    config.write_text(
        f"input: {corpus}\npattern: ['\\p{{N}}{{1,2}}', ' ?\\p{{L}}+']\nvocab_size: 265\n", encoding="utf-8"
    )
    assert main(["--config", str(config), "--out_dir", str(tmp_path / "run"), "--quiet"]) == 0
    assert json.loads((tmp_path / "run" / "bpeflow.json").read_bytes())["pattern"] == list(PATTERN)
    assert main(["config", "--config", str(config)]) == 0
    assert r"pattern: ['\p{N}{1,2}', ' ?\p{L}+']" in capsys.readouterr().out
