"""Tables that fit the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bpeflow.look.render import print_bars, print_fields, print_table

HEADINGS = ("name", "first", "second", "remark")
ROWS = [("a[b]", "1", "22,222", "one word"), ("a long name", "333", "4", "東京")]


def printed(width: int, *arguments: object, call: object = print_table) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    call(console, *arguments)  # type: ignore[operator]
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_figures_are_on_the_right() -> None:
    assert printed(80, HEADINGS, ROWS, "lrrl") == [
        "name         first  second  remark",
        "a[b]             1  22,222  one word",
        "a long name    333       4  東京",
    ]


@pytest.mark.parametrize("width", [50, 80])
def test_names_stay_whole_while_a_figure_fits_beside_them(width: int) -> None:
    names = ["fineweb_part_00001.txt", "owt_32k_second"]
    lines = printed(width, ("corpus", "tokenizer", "tokens", "share"), [(*names, "1,234", "5.6%")], "llrr")
    assert [names[0] in line and names[1] in line for line in lines] == [False, True] * (1 if width == 80 else 2)


@pytest.mark.parametrize("width", [30, 80])
def test_bars_fit(width: int) -> None:
    rows = [("entries", "12,345"), ("all", "1")]
    lines = printed(width, ("name", "count"), rows, [4.0, 1.0], call=print_bars)
    longest = min(40, width - 17)
    assert [line.count("█") for line in lines] == [0, longest, round(longest / 4)]


def test_figures_that_do_not_fit_follow_below() -> None:
    headings, rows = HEADINGS[:3], [row[:3] for row in ROWS]
    assert printed(20, headings, rows) == [
        "name         first",
        "a[b]             1",
        "a long name    333",
        "name         second",
        "a[b]         22,222",
        "a long name       4",
    ]


@pytest.mark.parametrize("width", range(20, 40))
def test_nothing_is_cut_and_text_is_folded(width: int) -> None:
    lines = printed(width, HEADINGS, ROWS, "lrrl")
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert all(cell in " ".join(lines) for cell in ("22,222", "333", "second"))


def test_bars_show_sizes() -> None:
    lines = printed(
        80, ("bytes", "tokens"), [("1", "400"), ("2", "100"), ("3", "1"), ("4", "0")], [400, 100, 1, 0], call=print_bars
    )
    assert [line[15:] for line in lines[1:]] == ["█" * 40, "█" * 10, "▏", ""]


def test_fields_have_labels_and_continue_below() -> None:
    assert printed(20, [("size", "one two three four"), ("", "five")], call=print_fields) == [
        "size  one two three",
        "      four",
        "      five",
    ]
