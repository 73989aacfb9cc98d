"""A file that was changed or replaced while it was read is an error; one that has only grown is not."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bpeflow.corpus.find import InputRules, find_inputs
from bpeflow.corpus.sources import check_unchanged
from bpeflow.errors import CorpusError


@pytest.fixture(params=["text.txt", "text.txt.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(b"some words") if path.suffix == ".gz" else b"some words")
    return path


def append(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b" more words")


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes() + b" more words")
    other.replace(path)


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(0, 0))  # as if it took longer than the clock of the file system ticks


def test_a_file_may_grow(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries = find_inputs([path], InputRules())
    append(path)
    check_unchanged(entries, "run again", may_grow=True)
    assert f"{path} has grown: only its first" in caplog.text
    with pytest.raises(CorpusError, match="was changed while it was read"):
        check_unchanged(entries, "run again")


@pytest.mark.parametrize("change", [replace, rewrite])
def test_a_file_may_not_change_otherwise(path: Path, change: Callable[[Path], None]) -> None:
    entries = find_inputs([path], InputRules())
    check_unchanged(entries, "run again", may_grow=True)
    change(path)
    with pytest.raises(CorpusError, match=r"was changed while it was read.*; run again"):
        check_unchanged(entries, "run again", may_grow=True)
