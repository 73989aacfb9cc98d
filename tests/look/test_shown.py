"""Results as `print` and notebooks show them."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpeflow
from bpeflow.cli.main import main

DOCUMENTS = ["low low low", "lower <low>"]


@pytest.fixture
def tokenizer() -> bpeflow.Tokenizer:
    return bpeflow.Tokenizer.train(iter(DOCUMENTS), vocab_size=259)


def test_an_evaluation_is_the_table_of_the_command(
    tokenizer: bpeflow.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    tokenizer.save("mine")
    Path("a.txt").write_text("low lower", encoding="utf-8")
    assert main(["evaluate", "--tokenizer", "mine", "--input", "a.txt", "--quiet"]) == 0
    command = [line.split("one thread")[0].rstrip() for line in capsys.readouterr().out.splitlines()]
    report = bpeflow.evaluate({"mine": tokenizer}, "a.txt")
    shown = str(report).splitlines()
    assert shown[0].split("one thread")[0].rstrip() == command[0]
    assert shown[1].split()[:5] == command[1].split()[:5] == ["a.txt", "9", "bytes", "5", "1.800"]
    assert len(shown) == len(command)
    html = report._repr_html_()
    assert html.startswith("<pre>")
    assert '<span style="font-weight: bold">' in html
    [row] = report
    assert str(row).splitlines()[1].split()[:5] == ["a.txt", "9", "bytes", "5", "1.800"]


def test_an_encoded_corpus_is_a_summary(tokenizer: bpeflow.Tokenizer, tmp_path: Path) -> None:
    encoded = tokenizer.encode_documents(["low", "lower"], tmp_path / "a<b.bin")
    assert isinstance(encoded, bpeflow.EncodedCorpus)
    assert encoded.bytes_per_token == encoded.bytes / encoded.tokens
    first, *others, last = str(encoded).splitlines()
    assert first.startswith("encoded  ")
    ends = [f"         documents end with {encoded.end_token}"] if encoded.end_token else []
    assert others == ends
    assert last == f"written  {tmp_path}/a<b.bin, {tmp_path}/a<b.bin.json"
    assert "a&lt;b.bin" in encoded._repr_html_()
    assert tokenizer.encode_documents([], tmp_path / "empty.bin").bytes_per_token is None


def test_a_training_result_is_the_summary_of_the_run() -> None:
    result = bpeflow.train({"input": iter(DOCUMENTS), "vocab_size": 259})
    assert [line.split()[0] for line in str(result).splitlines()] == ["corpus", "counting", "learning", "vocab"]
    assert "259 tokens" in result._repr_html_()


def test_a_stream_decoder_shows_what_it_holds_back(tokenizer: bpeflow.Tokenizer) -> None:
    decoder = tokenizer.stream_decoder(errors="ignore")
    decoder.feed(tokenizer.encode("é")[0])
    assert repr(decoder) == "StreamDecoder(b'\\xc3' held back, errors='ignore')"
