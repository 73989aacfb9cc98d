"""The one renderer: tokens in printable characters, tables, JSON, rich text as HTML, and a page around it.

Rich prints to terminals, files, notebooks and the text of results in Python. Tables never cut a figure: on a terminal
that is too narrow, the columns that do not fit follow below.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple
from unicodedata import category

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from bpeflow._util.text import Shown, show_token

#: The sign of a line end.
LINE_END = "⏎"

#: Characters that are shown as a sign instead of an escape.
_SIGNS = {"\n": LINE_END, "\t": "⇥", "\r": "␍"}

#: Columns that a token takes at most, by itself and in lists.
_TOKEN_WIDTH, _LISTED_WIDTH = 60, 40

#: Spaces between two columns.
_GAP = 2

#: Width of output that goes to a file or a pipe, in characters.
_UNLIMITED = 10_000

#: Columns of the longest bar.
_BAR = 40

#: Nothing may be loaded, from anywhere, and nothing but the page's own script runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


# ---- tokens ----


class Part(NamedTuple):
    """A part of a token. *Escaped* parts are characters or bytes that cannot be shown as they are."""

    text: str
    escaped: bool


def shown_parts(token: bytes) -> Iterator[Part]:
    r"""Yield the parts of a token.

    Bytes that are not UTF-8, control characters and other invisible characters are escaped. A combining character at
    the start of a part gets a dotted circle before it, as it would otherwise change the previous character.

    >>> list(shown_parts(b"a\n\xf0\x9f"))
    [Part(text='a', escaped=False), Part(text='⏎\\xf0\\x9f', escaped=True)]
    """
    for is_printable, group in groupby(token.decode(errors="surrogateescape"), str.isprintable):
        characters = "".join(group)
        if is_printable:
            circle = "◌" if category(characters[0]).startswith("M") else ""
            yield Part(circle + characters, False)
        else:
            yield Part("".join(map(_escape, characters)), True)


def append_token(text: Text, token: bytes, style: Style) -> None:
    """Append a token in printable characters. A line ends after the last sign of a line end in each escaped part."""
    for part in shown_parts(token):
        if not part.escaped:
            text.append(part.text, style)
            continue
        before, sign, after = part.text.rpartition(LINE_END)
        text.append(before + sign, style + Style(italic=True))
        text.append("\n" if sign else "")
        text.append(after, style + Style(italic=True))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _SIGNS.get(character) or ascii(character)[1:-1]


def is_incomplete(token: bytes) -> bool:
    """Return whether the bytes of a token are not valid UTF-8."""
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False


def literal(token: bytes) -> str:
    """Return a token as a Python literal, in characters that can be printed."""
    return show_token(token, _TOKEN_WIDTH)


def join_tokens(tokens: Iterable[bytes], between: str = " ") -> str:
    """Return tokens on one line."""
    return between.join(show_token(token, _LISTED_WIDTH) for token in tokens)


# ---- tables, labelled lines and JSON ----


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
        return self._printed(shutil.get_terminal_size((_UNLIMITED, 0)).columns).export_text().rstrip("\n")

    def _repr_html_(self) -> str:
        return self._printed(_UNLIMITED).export_html(code_format="<pre>{code}</pre>", inline_styles=True)

    def _printed(self, width: int) -> Console:
        console = Console(record=True, file=StringIO(), width=width, highlight=False)
        self.print_to(console)
        return console


class _Trimmed(NamedTuple):
    """A table without the spaces that would end its lines."""

    table: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.table, options, pad=False):
            text = Text.assemble(*((part.text, part.style or "") for part in line), no_wrap=True, overflow="ignore")
            text.rstrip()
            yield text


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
        console.print(_Trimmed(table))


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
    console.print(_Trimmed(grid))


def print_json(content: Any) -> None:
    """Print figures, and records as `fields_of` has them, as JSON."""
    sys.stdout.write(json.dumps(content, indent=2, default=_as_json) + "\n")


def _as_json(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else fields_of(value)


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record for JSON. The bytes of a token become `text` and, in hexadecimal, `hex`."""
    values: dict[str, Any] = {}
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        if name == "bytes" and isinstance(value, bytes):
            values["text"], values["hex"] = value.decode(errors="replace"), value.hex()
        else:
            values[name] = value
    return values


# ---- HTML ----


def to_html(text: Text) -> str:
    """Return rich text as HTML, in its own colours. The `title` in the meta of a style becomes a tooltip.

    >>> to_html(Text.assemble("a < ", ("b", "bold")))
    'a &lt; <span style="font-weight: bold">b</span>'
    """
    parts = []
    for content, style, _ in text.render(Console(file=StringIO())):
        rules = style.get_html_style(DEFAULT_TERMINAL_THEME) if style else ""
        title = style.meta.get("title") if style else None
        attributes = (f' style="{rules}"' if rules else "") + (f' title="{escape(title)}"' if title else "")
        parts.append(f"<span{attributes}>{escape(content)}</span>" if attributes else escape(content))
    return "".join(parts)


def make_page(title: str, body: str) -> str:
    """Return a page, in one file that loads nothing, follows the light or dark mode of the system, and can be printed.

    Args:
        title: the title, as text.
        body: what follows it, as HTML.
    """
    return _PAGE.format(policy=_POLICY, title=escape(title), style=resource("page.css"), body=body)


def resource(name: str) -> str:
    """Return the content of a file beside this module."""
    return resources.files("bpeflow.look").joinpath(name).read_text(encoding="utf-8")
