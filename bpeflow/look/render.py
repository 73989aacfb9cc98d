"""What is shown, on screens of all kinds: tokens in printable characters, rich text as HTML, and a page around it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from importlib import resources
from typing import Any, NamedTuple
from unicodedata import category

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from bpeflow._util.text import show_token

#: The sign of a line end.
LINE_END = "⏎"

#: Characters that are shown as a sign instead of an escape.
_SIGNS = {"\n": LINE_END, "\t": "⇥", "\r": "␍"}

#: Columns that a token takes at most.
_TOKEN_WIDTH = 60

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
    plain = escaped = ""
    for character in token.decode(errors="surrogateescape"):
        if character.isprintable():
            if escaped:
                yield Part(escaped, True)
                escaped = ""
            plain += f"◌{character}" if not plain and category(character).startswith("M") else character
        else:
            if plain:
                yield Part(plain, False)
                plain = ""
            escaped += _escape(character)
    if plain or escaped:
        yield Part(plain or escaped, not plain)


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


def to_html(text: Text) -> str:
    """Return rich text as HTML, in its own colours. The `title` in the meta of a style becomes a tooltip.

    >>> to_html(Text.assemble("a < ", ("b", "bold")))
    'a &lt; <span style="font-weight: bold">b</span>'
    """
    parts = []
    for content, style, _ in text.render(Console(file=io.StringIO())):
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
