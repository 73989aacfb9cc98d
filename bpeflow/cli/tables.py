"""Lines and tables that fit the terminal. Rich is only loaded for tables.

Lines are wrapped between words and tokens. Tables never cut a figure: on a terminal that is too narrow, the columns
that do not fit follow below.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: A word, or a quoted token, with what follows it up to a space outside quotes.
_UNBROKEN = re.compile(r"""(?:b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*"|\S)+""")

#: The indentation of a line, and its label if two spaces follow that.
_LABEL = re.compile(r" *(?:[^\s'\"]+(?: [^\s'\"]+)*  +)?")

#: Spaces between two columns.
_GAP = 2

#: Width of a table that goes to a file or a pipe, in characters.
_UNLIMITED = 10_000


def print_lines(lines: Iterable[str]) -> None:
    """Print lines. On a terminal, those that are too long for it are wrapped between words and tokens."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = (piece for line in lines for piece in wrap(line, width))
    sys.stdout.writelines(f"{line}\n" for line in lines)


def wrap(line: str, width: int) -> Iterator[str]:
    """Yield the pieces of a line, all but the first below what follows its label, or indented by two more spaces.

    >>> list(wrap("used  3 tokens: ' a' ' b' 'c'", 20))
    ["used  3 tokens: ' a'", "      ' b' 'c'"]
    """
    label = _LABEL.match(line)
    indent = label.end() if label and label[0].strip() else len(line) - len(line.lstrip()) + 2
    start, end = 0, 0
    for word in _UNBROKEN.finditer(line):
        if word.end() - start > (width if start == 0 else width - indent) and end > start:
            yield " " * (indent if start else 0) + line[start:end]
            start = word.start()
        end = word.end()
    yield " " * (indent if start else 0) + line[start:]


def table_console() -> Console:
    """Return the console for tables. In a file or a pipe, nothing is folded."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_UNLIMITED)


def print_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str | Text]], keys: int = 1) -> None:
    """Print a table. Where it is too wide, the columns that do not fit follow in further blocks.

    Args:
        console: where to print.
        headings: the headings of the columns.
        rows: the cells of each row; markup is not interpreted.
        keys: number of the first columns, which say what a row is about. Each block begins with them, and they are
            folded if need be. The others are figures, which are not.
    """
    lines = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in (headings, *rows)]
    widths = [max(cell.cell_len for cell in column) + _GAP for column in zip(*lines, strict=True)]
    widest = console.width // (2 * keys) if keys < len(headings) else None
    room = console.width + _GAP - sum(min(width, (widest or width) + _GAP) for width in widths[:keys])
    blocks: list[list[int]] = [[]]
    for column in range(keys, len(headings)):
        if blocks[-1] and sum(widths[other] for other in (*blocks[-1], column)) > room:
            blocks.append([])
        blocks[-1].append(column)
    for figures in blocks:
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
        for column in range(keys):
            table.add_column(headings[column], overflow="fold", max_width=widest)
        for column in figures:
            table.add_column(headings[column], justify="right", no_wrap=True)
        for row in lines[1:]:
            table.add_row(*row[:keys], *(row[column] for column in figures))
        console.print(table)
