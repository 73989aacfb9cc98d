"""Tests of tools/make_corpus.py: exact sizes, reproducible bytes, prefixes, and the word frequencies of real text."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import bpeflow
from random_text.ranks import HEAD, RANK_BITS, AliasTable
from random_text.words import Vocabulary

TOOL = Path(__file__).parents[2] / "tools" / "make_corpus.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_corpus", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    assert tool.main(["--size", "3MB", "--seed", "1", str(path)]) == 0
    return path


def generate(path: Path, *arguments: str) -> bytes:
    assert tool.main([*arguments, str(path)]) == 0
    return path.read_bytes()


@pytest.mark.slow
def test_the_size_is_exact_and_the_text_is_utf8(corpus: Path) -> None:
    text = corpus.read_bytes()
    assert len(text) == 3_000_000
    assert not any(ord(character) < 32 and character != "\n" for character in text.decode())


def test_a_seed_gives_the_same_bytes_on_every_machine(corpus: Path) -> None:
    assert (
        hashlib.sha256(corpus.read_bytes()).hexdigest()
        == "d12b9bd4d9ca14b35c360e37694f889d53756ff7c49a4313d434d3c4f1d79bef"
    )


@pytest.mark.slow
def test_another_seed_gives_different_words(corpus: Path, tmp_path: Path) -> None:
    other = generate(tmp_path / "other", "--size", "100KB", "--seed", "2")
    assert other != corpus.read_bytes()[:100_000]
    words, others = set(corpus.read_bytes()[:100_000].split()), set(other.split())
    assert len(words & others) < len(words) / 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 1000, 1_500_001])
def test_a_smaller_corpus_is_a_prefix_of_a_larger_one(corpus: Path, tmp_path: Path, size: int) -> None:
    text = generate(tmp_path / "small", "--size", str(size))
    whole = corpus.read_bytes()[:size].decode(errors="ignore").encode()  # without a character cut in two
    assert text == whole.ljust(size)


def test_a_character_that_does_not_fit_becomes_spaces() -> None:
    text = "aé–漢".encode()
    assert [tool.cut(text, size).decode() for size in range(10)] == [
        "", "a", "a ", "aé", "aé ", "aé  ", "aé–", "aé– ", "aé–  ", "aé–漢",
    ]  # fmt: skip
    assert tool.cut(text, 100) == text


@pytest.mark.slow
def test_documents_are_separated_by_the_separator(corpus: Path, tmp_path: Path) -> None:
    documents = corpus.read_text(encoding="utf-8").split("\n<|endoftext|>\n")
    lengths = np.array([len(document.encode()) for document in documents])
    assert 3_500 < lengths.mean() < 6_500
    assert np.median(lengths) < 0.8 * lengths.mean()  # skewed, as log-normal lengths are
    assert len(generate(tmp_path / "other", "--size", "3MB", "--separator", "§").split("\n§\n".encode())) > 400


def test_word_frequencies_are_those_of_real_text(corpus: Path) -> None:
    # The first 622,000 pre-tokens of English Wikipedia include 49,000 distinct ones; the top 100 make up 49 %.
    counts = bpeflow.count(corpus)
    total = counts.counts.sum()
    assert 4.4 < 3_000_000 / total < 5.0
    assert 48_000 < len(counts.counts) < 70_000
    assert 0.42 < counts.counts[:100].sum() / total < 0.56
    assert 0.4 < (counts.counts == 1).mean() < 0.7


def test_distinct_words_grow_by_heaps_law(corpus: Path, tmp_path: Path) -> None:
    tenth = tmp_path / "tenth"
    tenth.write_bytes(tool.cut(corpus.read_bytes(), 300_000))
    growth = len(bpeflow.count(corpus).counts) / len(bpeflow.count(tenth).counts)
    assert 0.55 < np.log10(growth) < 0.8


@pytest.mark.slow
def test_different_ranks_have_different_words() -> None:
    vocabulary = Vocabulary(np.random.PCG64(5))
    far = 2**RANK_BITS - 20_000
    ranks = np.concatenate([np.arange(HEAD, HEAD + 100_000), np.arange(far, far + 20_000)]).astype(np.uint64)
    words = vocabulary.head + vocabulary.tail(ranks, np.zeros(len(ranks), dtype=bool))
    assert len(set(words)) == HEAD + 120_000


def test_draws_follow_their_weights() -> None:
    weights = np.array([8.0, 1.0, 4.0, 3.0])
    drawn = AliasTable(weights)(np.random.PCG64(1).random_raw(1 << 18))
    assert np.bincount(drawn) / len(drawn) == pytest.approx(weights / 16, abs=0.005)


@pytest.mark.parametrize(
    ("text", "size"), [("12GB", 12 * 10**9), ("1.5 GB", 15 * 10**8), ("600mb", 6 * 10**8), ("8MiB", 1 << 23), ("7", 7)]
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert tool.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "0", "0MB", "1.5", "1e9", "12 XB", "12IB", "٣MB"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        tool.parse_size(text)


@pytest.mark.parametrize("arguments", [["--size", "lots"], ["--size", "1KB", "--seed", "-1"], []])
def test_a_wrong_command_line_exits_with_status_2(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        tool.main([*arguments, str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert not list(tmp_path.iterdir())


def test_too_little_disk_space_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=999))
    assert tool.main(["--size", "1000", str(tmp_path / "out")]) == 2
    assert "999 free" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_failed_write_leaves_the_existing_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    done = subprocess.run(
        [sys.executable, TOOL, "--size", "3MB", out],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, out.read_text(), list(tmp_path.iterdir())) == (2, "before", [out])
    assert str(out) in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unwritable_target_exits_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--size", "1KB", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert tool.main(["--size", "1KB", str(tmp_path / "file" / "out")]) == 2
    assert "file" in capsys.readouterr().err
