"""The tables of an evaluation."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bpeflow.cli import evaluate as evaluation_table
from bpeflow.cli.evaluate import make_tables
from bpeflow.dataset.evaluate import evaluate_all
from bpeflow.dataset.facade import Tokenizer


def test_tokenizers_and_corpora_are_crossed(tmp_path: Path) -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"he", b"l" * 50]
    tokenizer = Tokenizer(dict(enumerate(tokens)), [(b"h", b"e")], ["<|endoftext|>"])
    tokenizers = {"a[b]": tokenizer, "other": tokenizer}
    corpora = [str(tmp_path / "a"), str(tmp_path / "b")]
    for corpus, text in zip(corpora, ("hehe", ""), strict=True):
        Path(corpus).write_text(text, encoding="utf-8")
    shown = StringIO()
    for table in make_tables(evaluate_all(tokenizers, corpora), tokenizers):
        Console(file=shown, width=300).print(table)
    lines = [line.split() for line in shown.getvalue().splitlines()]
    assert lines[1][:8] == [corpora[0], "a[b]", "4", "bytes", "2", "2.000", "2.000", "0.00%"]
    assert [line[:2] for line in lines[2:5]] == [[corpora[0], "other"], [corpora[1], "a[b]"], [corpora[1], "other"]]
    assert lines[3][4:] == ["0", "–", "–", "–", "0.0%", "–", "–"]
    assert lines[6][:5] == ["a[b]", "259", "'l'", "×", "50"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3.25, "3.2 s"), (90.0, "1.5 min"), (5400.0, "1.5 hours"), (86_400 * 1234.5, "1,234.5 days")],
)
def test_durations_are_readable(seconds: float, shown: str) -> None:
    assert evaluation_table._duration(seconds) == shown
