"""Every code block of docs/migrating.md runs unchanged, section by section, and does what the text around it says."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bpeflow

TEXT = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
#: Enough text for a vocabulary of a thousand tokens, and text that tools treat differently.
CORPUS = "<|endoftext|>".join(
    path.read_text(encoding="utf-8") for path in sorted(Path(bpeflow.__file__).parent.glob("*.py"))
)
CORPUS += "line\r\n\r\nends\n\n\n <b>naïve</b> 日本語 \t x=12345;\n<|endoftext|>"

Names = dict[str, Any]


def run(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Names]:
    """Run the code blocks of a section, and return the names that each of them defined."""
    blocks = re.findall(r"^```python\n(.*?)^```", SECTIONS[title], re.MULTILINE | re.DOTALL)
    for module in re.findall(r"^(?:import|from) (\w+)", "\n".join(blocks), re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    (folder / "corpus.txt").write_text(CORPUS, encoding="utf-8", newline="")
    monkeypatch.chdir(folder)
    results: list[Names] = []
    for number, block in enumerate(blocks):
        names: Names = {}
        exec(compile(block, f"migrating.md, {title}, block {number + 1}", "exec"), names)
        results.append(names)
    return results


def check_huggingface(folder: Path, names: list[Names]) -> None:
    before, after = names[2]["before"], names[2]["bpeflow"].Tokenizer.load(folder / "after.json")
    assert before.get_vocab() == names[2]["tokenizers"].Tokenizer.from_file("after.json").get_vocab()
    for text in (CORPUS, names[2]["text"]):
        assert after.encode(text) == before.encode(text).ids


def check_rustbpe(folder: Path, names: list[Names]) -> None:
    before, ours, encoding = names[0]["before"], names[1]["tokenizer"], names[2]["encoding"]
    assert [before.decode_single_token_bytes(i) for i in range(256, 999)] == list(ours.vocab.tokens[257:1000])
    assert encoding.encode(CORPUS, allowed_special="all") == ours.encode(CORPUS)
    assert names[1]["ids"][-1] == encoding.eot_token == 256


def check_sentencepiece(folder: Path, names: list[Names]) -> None:
    assert names[1]["ids"][0] == names[1]["tokenizer"].special_tokens["<s>"]
    with pytest.raises(Exception, match="a SentencePiece model, which sentencepiece reads; bpeflow reads byte-level"):
        names[1]["Tokenizer"].load("before.model")


CHECKS: dict[str, Callable[[Path, list[Names]], None]] = {
    "From HuggingFace tokenizers": check_huggingface,
    "From tiktoken and rustbpe": check_rustbpe,
    "From SentencePiece BPE": check_sentencepiece,
}


def test_every_section_is_checked() -> None:
    assert list(SECTIONS) == list(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_the_code_blocks_run(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[title](tmp_path, run(title, tmp_path, monkeypatch))
