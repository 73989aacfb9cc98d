"""Excerpts of corpora: the beginning, and samples from all over."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bpeflow import CorpusError
from bpeflow.config import Settings
from bpeflow.corpus.excerpts import first_text, sample_corpus


@pytest.mark.parametrize(
    ("content", "size", "expected"),
    [
        ("aé日b".encode(), 100, ("aé日b", True)),
        ("aé日b".encode(), 7, ("aé日b", True)),
        ("aé日b".encode(), 6, ("aé日", False)),
        ("aé日b".encode(), 5, ("aé", False)),  # a character that does not fit is left out
        (b"a\xffb\xe6", 100, ("a\ufffdb\ufffd", True)),
    ],
)
def test_text_ends_between_characters(content: bytes, size: int, expected: tuple[str, bool], tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert first_text({"input": str(path)}, size) == expected


def test_files_follow_each_other(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{name}<|endoftext|>")
    found, is_whole = first_text({"input": str(tmp_path / "*.txt")}, 100)
    assert (sorted(found.split("<|endoftext|>")), is_whole) == (["", "a.txt", "b.txt"], True)


def test_records_get_an_end(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in ("low", "é\n")))
    corpus: dict[str, Any] = {"input": str(path), "text_field": "body"}
    assert first_text(corpus, 100, "<s>") == ("low<s>é\n<s>", True)
    assert first_text(corpus, 4) == ("low\n", False)


def test_missing_input_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        first_text({"input": str(tmp_path / "none.txt")}, 100)


def settings(**values: object) -> dict[str, object]:
    return Settings.model_validate({"vocab_size": 300, **values}).model_dump(mode="json")


def test_it_comes_from_all_over_the_corpus(tmp_path: Path) -> None:
    for file in range(3):
        documents = (f"file {file} number {number} " * 20 for number in range(400))
        (tmp_path / f"{file}.txt").write_text("<|endoftext|>".join(documents), encoding="utf-8")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    sample = sample_corpus(settings(input=str(tmp_path)), 50_000)
    [texts] = sample.texts.values()
    assert {text[:6] for text in texts} == {"file 0", "file 1", "file 2"}
    assert 40_000 < sum(map(len, texts)) < 80_000 < size
    numbers = {int(text.split()[3]) for text in texts}
    assert min(numbers) < 40 and max(numbers) > 360
    assert not any("<|" in text for text in texts)
    assert "a sample of the corpus" in sample.description


def test_a_small_corpus_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one<|endoftext|>two", encoding="utf-8")
    assert sample_corpus(settings(input=str(tmp_path / "a.txt"))).texts == {"input": ("one", "two")}


def test_streams_are_read_from_their_beginning_and_sources_have_names(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"body": f"record {number} <s>"}) + "\n" for number in range(500))
        file.write("not JSON\n")
    (tmp_path / "b.txt").write_bytes(b"plain \xff text")
    sources = [
        {"name": "lines", "paths": str(tmp_path / "a.jsonl.gz"), "text_field": "body", "max_bytes": 500},
        {"name": "text", "paths": str(tmp_path / "b.txt")},
    ]
    texts = sample_corpus(settings(sources=sources, special_tokens=["<s>"])).texts
    assert texts["lines"][:2] == ("record 0 ", "record 1 ")
    assert texts["text"] == ("plain \ufffd text",)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("missing.txt", "No sample of the corpus: the input missing.txt"),
        ("-", "which could be read only once"),
    ],
)
def test_without_a_corpus_the_reason_is_given(inputs: str, reason: str, tmp_path: Path) -> None:
    sample = sample_corpus(settings(input=inputs))
    assert sample.texts == {}
    assert reason in sample.description
