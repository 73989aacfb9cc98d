"""Lines that fit the terminal."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator

#: A word, or a quoted token, with what follows it up to a space outside quotes.
_UNBROKEN = re.compile(r"""(?:b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*"|\S)+""")

#: The indentation of a line, and its label if two spaces follow that.
_LABEL = re.compile(r" *(?:[^\s'\"]+(?: [^\s'\"]+)*  +)?")


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
