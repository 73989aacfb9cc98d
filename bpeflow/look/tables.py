"""Tables and labelled lines, by rich: on standard output, and as the text of results in Python and notebooks.

Tables never cut a figure: on a terminal that is too narrow, the columns that do not fit follow below.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpeflow._util.text import Shown, show_token
from bpeflow.look.render import fields_of, to_html

if TYPE_CHECKING:
    from bpeflow.look.vocabulary import VocabToken

#: Spaces between two columns.
_GAP = 2

#: Width of output that goes to a file or a pipe, in characters.
_UNLIMITED = 10_000

#: Columns of the longest bar.
_BAR = 40

#: Tokens of a list that are shown, and the most columns of the screen for each.
LISTED, _TOKEN_WIDTH = 10, 40


def output_console() -> Console:
    """Return the console of standard output. In a file or a pipe, nothing is folded."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=_UNLIMITED, highlight=False)


class Printable(Shown):
    """A result that `print` and notebooks show as the command line does."""

    def print_to(self, console: Console) -> None:
        """Print it."""
        raise NotImplementedError

    def __str__(self) -> str:
        width = shutil.get_terminal_size((_UNLIMITED, 0)).columns
        return self._printed(width=width, color_system=None)

    def _repr_html_(self) -> str:
        coloured = self._printed(width=_UNLIMITED, force_terminal=True, color_system="truecolor", legacy_windows=False)
        return f"<pre>{to_html(Text.from_ansi(coloured))}</pre>"

    def _printed(self, **options: Any) -> str:
        output = StringIO()
        self.print_to(Console(file=output, highlight=False, **options))
        return "\n".join(line.rstrip() for line in output.getvalue().rstrip("\n").split("\n"))


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], sides: str = "") -> None:
    """Print a table. Where it is too wide, the figures that do not fit follow in further blocks.

    Args:
        console: where to print.
        headings: the headings of the columns.
        rows: the cells of each row; markup is not interpreted.
        sides: a letter for each column: `l` for text, and `r` for figures. Each block has all text and the first
            column. Text is folded only if it leaves no room for a figure. By default the first column is text.
    """
    sides = sides or "l" + "r" * (len(headings) - 1)
    rows = list(rows)
    widths = [max(map(cell_len, column)) + _GAP for column in zip(headings, *rows, strict=True)]
    keys = [column for column, side in enumerate(sides) if column == 0 or side == "l"]
    figures = [column for column in range(len(headings)) if column not in keys]
    room = console.width + _GAP - sum(widths[column] for column in keys)
    if room < max((widths[column] for column in figures), default=0):
        room = console.width // 2  # text is folded to the other half
    blocks: list[list[int]] = [[]]
    for column in figures:
        if blocks[-1] and sum(widths[other] for other in (*blocks[-1], column)) > room:
            blocks.append([])
        blocks[-1].append(column)
    for block in blocks:
        columns = sorted([*keys, *block])
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
        for column in columns:
            is_text = sides[column] == "l"
            table.add_column(
                headings[column], justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(row[column]) for column in columns))
        console.print(table)


def print_bars(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], sizes: Sequence[float]
) -> None:
    """Print a table of figures with a bar of a size at the end of each row, which is shorter on a narrow terminal."""
    widths = [max(map(cell_len, column)) + _GAP for column in zip(headings, *rows, strict=True)]
    most, longest = max(sizes, default=1), max(min(_BAR, console.width - sum(widths)), 1)
    bars = ["█" * round(size / most * longest) or "▏" * bool(size) for size in sizes]
    print_table(
        console, (*headings, ""), [(*row, bar) for row, bar in zip(rows, bars, strict=True)], "r" * len(headings) + "l"
    )


def print_fields(console: Console, fields: Iterable[tuple[str, str]]) -> None:
    """Print lines with a label each; one without a label continues the line before it."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for label, text in fields:
        grid.add_row(Text(label, "bold"), Text(text))
    console.print(grid)


def join_tokens(tokens: Iterable[bytes], between: str = " ") -> str:
    """Return tokens on one line."""
    return between.join(show_token(token, _TOKEN_WIDTH) for token in tokens)


def list_tokens(tokens: Sequence[VocabToken]) -> str:
    """Return the first of some tokens on one line."""
    listed = join_tokens(token.bytes for token in tokens[:LISTED]) or "none"
    return f"{listed} …" if len(tokens) > LISTED else listed


def print_json(content: Any) -> None:
    """Print figures, and records as `fields_of` has them, as JSON."""
    sys.stdout.write(json.dumps(content, indent=2, default=_as_json) + "\n")


def _as_json(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else fields_of(value)
