"""Tokenizers to extend: extended, continued, and refused if they do not fit."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from real_data import real_data, real_text

import bpeflow
from bpeflow.backends.base import MergeBackend
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError
from bpeflow.formats import gpt2

TEXT = "low lower lowest newest widest<|endoftext|>the lower the better, they said<|endoftext|>" * 20
OTHER = "the other text<|endoftext|>that she wrote then<|endoftext|>" * 20


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return the run folder of a tokenizer with 270 entries, trained on another text."""
    (tmp_path / "other.txt").write_text(OTHER, encoding="utf-8")
    train(tmp_path / "other.txt", 270, out_dir=tmp_path / "first")
    return tmp_path / "first"


def train(corpus: Path, vocab_size: int, **settings: Any) -> bpeflow.TrainResult:
    return bpeflow.train({"input": str(corpus), "vocab_size": vocab_size, **settings})


def merges_of(folder: Path) -> tuple[tuple[bytes, bytes], ...]:
    return gpt2.load_files(folder / "vocab.json", folder / "merges.txt").merges


def test_a_tokenizer_is_extended(corpus: Path, first: Path, tmp_path: Path, backend: MergeBackend) -> None:
    result = train(corpus, 285, init_from=first, out_dir=tmp_path / "run", backend=backend.name)
    assert result.merges[:13] == merges_of(first)
    old, new = (json.loads((f / "vocab.json").read_text(encoding="utf-8")) for f in (first, tmp_path / "run"))
    assert old.items() <= new.items()
    assert len(new) == 285
    expected = bpeflow.learn_merges(result.counts, 285, ["<|endoftext|>"], initial_merges=merges_of(first))
    assert result.merges == expected.pairs
    report = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["init_from"] == str(first)
    assert (report["learning"]["replayed"], report["learning"]["learned"], report["learning"]["wanted"]) == (13, 15, 28)
    assert report["learning"]["lowest_count"] == expected.counts[-1]


def test_a_folder_in_gpt2s_format_is_enough(corpus: Path, first: Path) -> None:
    with_report = train(corpus, 285, init_from=first)
    (first / "run.json").unlink()
    (first / "counts.npz").unlink()
    assert train(corpus, 285, init_from=first).vocab == with_report.vocab


@pytest.mark.parametrize("tie_break", ["greatest_bytes", "smallest_ids", "huggingface"])
def test_a_longer_run_continues_a_shorter_one(
    corpus: Path, tmp_path: Path, tie_break: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"tie_break": tie_break, "special_tokens": ["<|endoftext|>", "lo", "the", "Ġt"]}
    at_once = train(corpus, 290, **settings)
    run = tmp_path / "run"
    train(corpus, 270, **settings, out_dir=run)
    assert main(["merge", "--counts", str(run), "--init_from", str(run), "--vocab_size", "290"]) == 0
    longer = tmp_path / "run-290"
    assert merges_of(longer) == at_once.merges
    replayed = json.loads((longer / "run.json").read_text(encoding="utf-8"))["learning"]["replayed"]
    assert f"{len(at_once.merges) - replayed} merges after {replayed} replayed" in capsys.readouterr().out
    assert main(["merge", "--counts", str(run), "--init_from", str(longer), "--vocab_size", "280"]) == 2
    assert "larger vocab_size" in capsys.readouterr().err


def test_several_sizes_all_start_with_it(corpus: Path, first: Path, tmp_path: Path) -> None:
    bpeflow.train({"input": str(corpus), "vocab_sizes": [275, 285], "init_from": first, "out_dir": tmp_path / "run"})
    assert merges_of(tmp_path / "run" / "vocab_275") == merges_of(tmp_path / "run")[:18]
    with pytest.raises(ConfigError, match="the vocabulary is full, and 3 of 13 initial merges are left"):
        bpeflow.train({"input": str(corpus), "vocab_sizes": [267, 285], "init_from": first})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"special_tokens": ["<|endoftext|>", "<pad>"]},
            r"other special tokens: it alone has \[\], the settings alone have \['<pad>'\]",
        ),
        ({"special_tokens": ["<eot>"]}, r"it alone has \['<\|endoftext\|>'\], the settings alone have \['<eot>'\]"),
        ({"special_tokens": []}, r"it alone has \['<\|endoftext\|>'\], the settings alone have \[\]"),
        ({"special_tokens": ["<|endoftext|>", "the"]}, r"it alone has \[\], the settings alone have \['the'\]"),
        ({"pattern": "cl100k"}, "trained with another pattern, 'gpt2', than these counts, 'cl100k'"),
        ({"vocab_size": 260}, "the vocabulary is full, and 10 of 13 initial merges are left"),
        ({"init_from": "nowhere"}, "no vocab.json in nowhere"),
    ],
    ids=str,
)
def test_a_tokenizer_that_does_not_fit_is_refused_before_any_work(
    corpus: Path, first: Path, tmp_path: Path, settings: dict[str, Any], complaint: str
) -> None:
    wanted = {"vocab_size": 290, "init_from": first, "out_dir": tmp_path / "run", **settings}
    with pytest.raises(ConfigError, match=complaint):
        train(corpus, **wanted)
    assert not (tmp_path / "run").exists()


def test_counts_of_another_pattern_are_refused(
    corpus: Path, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train(corpus, 280, pattern="llama3", out_dir=run)
    assert main(["merge", "--counts", str(run), "--init_from", str(first)]) == 2
    assert "another pattern, 'gpt2', than these counts, 'llama3'" in capsys.readouterr().err
    shutil.copy(run / "counts.npz", tmp_path / "alone.npz")  # the pattern of these is unknown
    flags = ["--counts", str(tmp_path / "alone.npz"), "--vocab_size", "290", "--out_dir", str(tmp_path / "more")]
    assert main(["merge", *flags, "--init_from", str(first)]) == 0


def test_the_folder_of_the_tokenizer_cannot_be_the_run_folder(corpus: Path, first: Path) -> None:
    before = merges_of(first)
    with pytest.raises(ConfigError, match="give another out_dir"):
        train(corpus, 290, init_from=first, out_dir=first)
    assert merges_of(first) == before


def test_changed_ids_are_warned_about(corpus: Path, first: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        train(corpus, 290, init_from=first)
        assert not caplog.records
        train(corpus, 290, init_from=first, special_tokens_first=True)
    assert "257 of the 270 tokens of" in caplog.text
    assert "get another id, as the order is" in caplog.text


def test_an_init_from_is_not_read_for_counts_alone(corpus: Path, tmp_path: Path) -> None:
    train(corpus, 280, init_from=tmp_path / "nowhere", skip_merge=True)


@pytest.mark.slow
def test_gpt2_as_it_was_published_is_extended(tmp_path: Path) -> None:
    """All of its merges, on a text that contains few of them."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    shutil.copy(real_data("vocabs/gpt2.encoder.json"), folder / "vocab.json")
    shutil.copy(real_data("vocabs/gpt2.vocab.bpe"), folder / "merges.txt")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(real_text("wikitext2_2MB"))
    result = train(corpus, 50_300, init_from=folder)
    assert result.vocab is not None
    assert len(result.vocab) == 50_300
    assert result.merges[:50_000] == merges_of(folder)
    assert result.learned is not None
    assert result.learned.counts[:50_000].count(0) > 20_000
