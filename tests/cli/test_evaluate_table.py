"""The tables of an evaluation."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from bpeflow.dataset.evaluation_report import CorpusText, Evaluation, EvaluationReport
from bpeflow.tokenizer.tokenizer import Tokenizer

TOKENIZER = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
LONG = "a-rather-long-name-of-a-run-" * 2


def evaluation(tokenizer: str, corpus: str | None = "a.txt", tokens: int = 500, **figures: float) -> Evaluation:
    text = CorpusText(bytes=1_000 if tokens else 0, words=200 if tokens else 0, documents=3)
    values = {"single_byte_tokens": 100, "used_tokens": 50, "seconds": 1e-6, **figures}
    row = Evaluation(tokenizer, corpus, text, tokens, vocab_size=259, **values)  # type: ignore[arg-type]
    return row.relative_to(evaluation("base", tokens=500)) if tokens != 500 else row


def shown(rows: list[Evaluation], width: int = 160, for_size: int | None = None, **options: object) -> str:
    names = dict.fromkeys(row.tokenizer for row in rows)
    baseline = next(iter(names)) if len(names) > 1 else None
    console = Console(file=StringIO(), width=width, **options)  # type: ignore[arg-type]
    EvaluationReport(dict.fromkeys(names, TOKENIZER), baseline, rows).print_to(console, for_size)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_tokenizers_are_listed_for_each_corpus() -> None:
    rows = [evaluation(t, c, n) for c in ("a[b].txt", None) for t, n in (("first", 400), ("second[/]", 250))]
    lines = [line.split() for line in shown(rows).splitlines()]
    assert [line[:2] for line in lines[1:3]] == [["a[b].txt", "first"], ["a[b].txt", "second[/]"]]
    assert [line[:3] for line in lines[3:5]] == [["all", "together", "first"], ["all", "together", "second[/]"]]
    assert lines[2][:8] == ["a[b].txt", "second[/]", "1.0", "kB", "250", "4.000", "×", "2.00"]


def test_one_tokenizer_has_a_row_for_each_corpus() -> None:
    lines = [line.split() for line in shown([evaluation("t", "a.txt"), evaluation("t", "b.txt", 0)]).splitlines()]
    assert "ratio" not in lines[0]
    assert lines[1][:6] == ["a.txt", "1.0", "kB", "500", "2.000", "2.500"]
    assert lines[2] == ["b.txt", "0", "bytes", "0", "–", "–", "–", "19.3%", "–"]


def test_the_ratio_is_explained() -> None:
    assert "times the bytes per token of a; more is better" in shown([evaluation("a"), evaluation("b")])


def test_hours_are_shown_for_the_size_that_is_asked_for() -> None:
    rows = [evaluation("a", seconds=0.0003)]
    assert "take" not in shown(rows)
    lines = shown(rows, for_size=12_000_000_000).splitlines()
    assert lines[0].endswith("12.0 GB take")
    assert lines[1].endswith("1:00:00")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["t", LONG])
def test_nothing_is_cut_at_any_width(width: int, name: str) -> None:
    rows = [evaluation(t, c, 250) for c in ("a.txt", LONG + ".txt") for t in (name, "other")]
    text = shown(rows, width, 12_000_000_000)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    assert text.count("4.000") == 4
    assert LONG in "".join(line.split("  ")[0].strip() for line in lines)  # folded
    headings = [re.split("  +", line)[2:] for line in lines if line.startswith("corpus  ")]
    assert [heading.strip() for block in headings for heading in block] == [
        "text", "tokens", "bytes/token", "ratio", "tokens/word", "single bytes", "used", "one thread", "12.0 GB take",
    ]  # fmt: skip
