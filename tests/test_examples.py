"""The examples run, and print what they are to show. (`random_windows` has tests of its own.)"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import save_tokenizer

from bpeflow import Tokenizer

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("der Hund und die Katze und der Hund\n" * 50, encoding="utf-8")
    return path


def run(name: str, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.py"))])
def test_without_arguments_an_example_says_how_it_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(name, monkeypatch=monkeypatch)
    assert capsys.readouterr().err.startswith(f"usage: {name}.py ")


@pytest.mark.slow
def test_words_are_counted(corpus: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    run("word_count", corpus, corpus, monkeypatch=monkeypatch)
    assert capfd.readouterr().out.splitlines()[0].split() == ["200", "der"]


@pytest.mark.slow
def test_patterns_are_compared(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare_patterns", corpus, corpus, 270, monkeypatch=monkeypatch)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "pattern", "gpt2", "cl100k", "o200k", "llama3", "qwen2",
    ]  # fmt: skip


def test_a_vocabulary_is_extended(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = save_tokenizer(tmp_path / "old")
    run("extend_gpt2", old, corpus, tmp_path / "new", "--new_tokens", 10, monkeypatch=monkeypatch)
    assert capsys.readouterr().out.startswith("10 new tokens, ids")
    assert len(Tokenizer.load(tmp_path / "new")) == len(Tokenizer.load(old)) + 10


@pytest.mark.slow
def test_a_folder_for_transformers_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    run("transformers_export", corpus, tmp_path / "my_model", monkeypatch=monkeypatch)
    assert "<|im_start|>assistant" in capsys.readouterr().out


def test_the_notebook_runs() -> None:
    """Its cells, one after another, and what it shows has a form for notebooks."""
    notebook = json.loads((EXAMPLES / "look_at_a_tokenizer.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "clear all outputs before you commit"
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert "<" in names["explanation"]._repr_html_()
