"""Every block of docs/migrating.md runs as it stands, section by section, and does what is said around it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
#: Text enough for a vocabulary of a thousand, and what tools treat differently.
CORPUS = "<|endoftext|>".join(
    path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parents[1] / "bpeflow").glob("*.py"))
)
CORPUS += "line\r\n\r\nends\n\n\n <b>naïve</b> 日本語 \t x=12345;\n<|endoftext|>"

Names = dict[str, Any]


def run(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Names]:
    """Run the blocks of a section; return the names that each left."""
    blocks = re.findall(r"^```python\n(.*?)^```", SECTIONS[title], re.MULTILINE | re.DOTALL)
    for module in re.findall(r"^(?:import|from) (\w+)", "\n".join(blocks), re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    (folder / "corpus.txt").write_text(CORPUS, encoding="utf-8", newline="")
    monkeypatch.chdir(folder)
    left: list[Names] = []
    for number, block in enumerate(blocks):
        names: Names = {}
        exec(compile(block, f"migrating.md, {title}, block {number + 1}", "exec"), names)
        left.append(names)
    return left


def check_huggingface(folder: Path, left: list[Names]) -> None:
    before, after = left[2]["before"], left[2]["bpeflow"].Tokenizer.load(folder / "after.json")
    assert before.get_vocab() == left[2]["tokenizers"].Tokenizer.from_file("after.json").get_vocab()
    for text in (CORPUS, left[2]["text"]):
        assert after.encode(text) == before.encode(text).ids


def check_rustbpe(folder: Path, left: list[Names]) -> None:
    before, ours, encoding = left[0]["before"], left[1]["tokenizer"], left[2]["encoding"]
    assert [before.decode_single_token_bytes(i) for i in range(256, 999)] == list(ours.vocab.tokens[257:1000])
    assert encoding.encode(CORPUS, allowed_special="all") == ours.encode(CORPUS)
    assert left[1]["ids"][-1] == encoding.eot_token == 256


def check_sentencepiece(folder: Path, left: list[Names]) -> None:
    assert left[1]["ids"][0] == left[1]["tokenizer"].special_tokens["<s>"]
    with pytest.raises(Exception, match="a SentencePiece model; bpeflow reads byte-level BPE only"):
        left[1]["Tokenizer"].load("before.model")


def check_cs336(folder: Path, left: list[Names]) -> None:
    assert left[1]["tokenizer"].encode(CORPUS) == left[0]["tokenizer"].encode(CORPUS)
    assert left[0]["ids"] == left[0]["tokenizer"].encode(CORPUS)
    assert (folder / "homework" / "merges.pkl").exists()


CHECKS: dict[str, Callable[[Path, list[Names]], None]] = {
    "From HuggingFace tokenizers": check_huggingface,
    "From tiktoken and rustbpe": check_rustbpe,
    "From SentencePiece BPE": check_sentencepiece,
    "From the homework of Stanford CS336": check_cs336,
}


def test_every_section_is_checked() -> None:
    assert list(SECTIONS) == list(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_the_lines_that_change_run(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[title](tmp_path, run(title, tmp_path, monkeypatch))
