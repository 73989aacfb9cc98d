"""The normalizer travels with counts, merges and vocabularies to the tokenizer, in memory and in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from peers import open_huggingface

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError
from bpeflow.pretokenize.normalizer import UNICODE_VERSION
from bpeflow.run_dir.run_files import read_report

DOCUMENTS = ["Thé cafe\u0301 ﬁnd", "THE café ﬁne"] * 5
NAMES = ("nfkc", "lowercase")


def train(out: Path | None = None, **options: object) -> bpeflow.TrainResult:
    settings = {"input": iter(DOCUMENTS), "vocab_size": 270, "out_dir": out, "normalizer": NAMES}
    return bpeflow.train(settings | options)


def test_a_trained_vocabulary_knows_its_normalizer(tmp_path: Path) -> None:
    result = train(tmp_path / "run", output={"formats": ["huggingface"]})
    vocab = result.vocab
    assert vocab is not None
    assert " café".encode() in vocab.token_ids
    assert not any("ﬁ".encode() in token or b"\xcc" in token for token in vocab.tokens if len(token) > 1)
    run = tmp_path / "run"
    tokenizers = [
        result.tokenizer,
        bpeflow.Tokenizer(vocab, vocab.merges),
        bpeflow.Tokenizer.load(run),
        bpeflow.Tokenizer.load(run / "tokenizer.json"),
        bpeflow.Tokenizer.from_files(run / "vocab.json", run / "merges.txt"),
        bpeflow.Tokenizer.train(iter(DOCUMENTS), 270, normalizer=NAMES),
        bpeflow.learn_merges(bpeflow.count(iter(DOCUMENTS), normalizer=NAMES), 270, ["<|endoftext|>"]).tokenizer(),
    ]
    text = "CAFE\u0301 ﬁ"
    for tokenizer in tokenizers:
        assert tokenizer.normalizer == NAMES
        assert tokenizer.encode(text) == result.tokenizer.encode("café fi")
        assert tokenizer.decode(tokenizer.encode(text)) == "café fi"
    assert open_huggingface(run / "tokenizer.json").encode(text).ids == result.tokenizer.encode(text)


def test_a_run_records_its_normalizer(tmp_path: Path) -> None:
    report = train(tmp_path).report
    assert read_report(tmp_path) == report
    assert report.corpus is not None
    assert (report.corpus.normalizer, report.corpus.normalizer_unicode) == (NAMES, UNICODE_VERSION)
    assert report.settings["normalizer"] == [*NAMES]
    plain = bpeflow.train({"input": iter(DOCUMENTS), "vocab_size": 260}).report.corpus
    assert plain is not None
    assert (plain.normalizer, plain.normalizer_unicode) == ((), None)


def test_the_command_line_takes_normalizers(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("É ÉÉ", encoding="utf-8")
    flags = ["--input", str(tmp_path / "text"), "--vocab_size", "258", "--normalizer", "nfd", "lowercase", "--quiet"]
    assert main(["train", *flags, "--out_dir", str(tmp_path / "run")]) == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run").normalizer == ("nfd", "lowercase")
    assert json.loads((tmp_path / "run" / "bpeflow.json").read_text(encoding="utf-8"))["normalizer"] == [
        "nfd",
        "lowercase",
    ]


def test_merging_again_keeps_the_normalizer_of_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bpeflow.count(iter(DOCUMENTS), normalizer=NAMES).save(tmp_path / "counts.npz")
    flags = ["--counts", str(tmp_path / "counts.npz"), "--vocab_size", "262", "--quiet"]
    assert main(["merge", *flags, "--out_dir", str(tmp_path / "run")]) == 0
    assert bpeflow.Tokenizer.load(tmp_path / "run").normalizer == NAMES
    assert main(["merge", *flags, "--out_dir", str(tmp_path / "x"), "--set", "normalizer=nfc"]) != 0
    assert "normalizer concerns counting, which is not repeated" in capsys.readouterr().err


def test_a_tokenizer_with_another_normalizer_is_not_extended(tmp_path: Path) -> None:
    train(tmp_path / "first")
    assert len(train(tmp_path / "more", init_from=tmp_path / "first", vocab_size=272).merges) > 0
    with pytest.raises(ConfigError, match=r"has the normalizer \('nfkc', 'lowercase'\), and here it is \(\), with"):
        train(tmp_path / "other", init_from=tmp_path / "first", normalizer=())


def test_formats_without_normalizers_are_refused_before_counting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^output\.formats: tiktoken: .* has no normalizers, and this tokenizer"):
        train(tmp_path / "run", output={"formats": ["tiktoken"]})
