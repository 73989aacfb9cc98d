"""Lines that fit the terminal."""

from __future__ import annotations

import sys

import pytest

from bpeflow.cli.tables import print_lines, wrap

TOKENS = "tokens  7 only in B: '  ' ' ' × 8 \"it's\" b'\\xe2\\x80' '\\'' '東' …"


@pytest.mark.parametrize("width", range(20, 60))
def test_lines_are_broken_between_tokens_and_continue_below_the_first(width: int) -> None:
    first, *others = wrap(TOKENS, width)
    assert all(piece.startswith(" " * 8) and piece[8] != " " for piece in others)
    assert " ".join([first, *(piece[8:] for piece in others)]) == TOKENS
    assert all(len(piece) <= width for piece in (first, *others))
    for token in ("'  '", "' '", '"it\'s"', "'\\''"):
        assert any(token in piece for piece in (first, *others))


@pytest.mark.parametrize("line", ["", "  a  b", "x" * 100, "  12,345  '  '"])
def test_lines_that_fit_and_words_that_cannot_be_broken_stay_as_they_are(line: str) -> None:
    assert list(wrap(line, 20)) == [line]


def test_lines_without_a_label_are_indented_further() -> None:
    assert list(wrap("  13: their bytes are", 12)) == ["  13: their", "    bytes", "    are"]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_only_a_terminal_wraps(
    on_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    monkeypatch.setenv("COLUMNS", "20")
    print_lines([TOKENS])
    assert (capsys.readouterr().out.count("\n") > 1) == on_terminal
