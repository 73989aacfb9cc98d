"""Tables that never cut a figure: on a terminal that is too narrow, the columns that do not fit follow below."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

#: Spaces between two columns.
_GAP = 2


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
    block = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in keys:
        block.add_column(column.header, overflow="fold", max_width=widest)
    for column in figures:
        block.add_column(column.header, justify=column.justify, no_wrap=column.justify == "right", overflow="fold")
    for row in zip(*(column.cells for column in (*keys, *figures)), strict=True):
        block.add_row(*row)
    return block


def _width(console: Console, column: Column) -> int:
    cells = [column.header, *column.cells]
    return max(Measurement.get(console, console.options, cell).maximum for cell in cells)
