"""Lines and tables that fit the terminal. Rich is only loaded for tables.

Lines are wrapped between words and tokens. Tables never cut a figure: on a terminal that is too narrow, the columns
that do not fit follow below.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

#: A word, or a quoted token, with what follows it up to a space outside quotes.
_UNBROKEN = re.compile(r"""(?:b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*"|\S)+""")

#: The indentation of a line, and its label if two spaces follow that.
_LABEL = re.compile(r" *(?:[^\s'\"]+(?: [^\s'\"]+)*  +)?")

#: Spaces between two columns.
_GAP = 2

#: Width of a table that goes to a file or a pipe, in characters.
_WIDE = 160


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
    """Return the console for tables."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_WIDE)


def print_table(console: Console, table: Table, keys: int = 1) -> None:
    """Print a table, in several blocks if it is wider than the console.

    Args:
        console: where to print.
        table: the table, of strings.
        keys: number of the first columns, which say what a row is about. Each block begins with them, and they are
            folded if need be.
    """
    if table.title:
        console.print(table.title, highlight=False)
    for block in _blocks(console, table, keys):
        console.print(block)


def _blocks(console: Console, table: Table, keys: int) -> Iterator[Table]:
    key_columns, figures = table.columns[:keys], table.columns[keys:]
    widest = console.width // (2 * max(keys, 1))
    room = console.width - sum(min(_width(console, column), widest) + _GAP for column in key_columns)
    block: list[Column] = []
    for column in figures:
        if block and sum(_width(console, other) + _GAP for other in (*block, column)) - _GAP > room:
            yield _table(key_columns, block, widest)
            block = []
        block.append(column)
    yield _table(key_columns, block, widest)


def _table(keys: list[Column], figures: list[Column], widest: int) -> Table:
    """Return a table of some of the columns."""
    from rich.table import Table

    block = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in keys:
        block.add_column(column.header, overflow="fold", max_width=widest)
    for column in figures:
        block.add_column(column.header, justify=column.justify, no_wrap=column.justify == "right", overflow="fold")
    for row in zip(*(column.cells for column in (*keys, *figures)), strict=True):
        block.add_row(*row)
    return block


def _width(console: Console, column: Column) -> int:
    from rich.measure import Measurement

    cells = [column.header, *column.cells]
    return max(Measurement.get(console, console.options, cell).maximum for cell in cells)
