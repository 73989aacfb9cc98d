"""The beginning of a corpus, as people look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bpeflow import CorpusError
from bpeflow.corpus.first_text import first_text


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
