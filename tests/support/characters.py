"""Selections of Unicode's characters."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

import regex

_LATER_PLANES = chain.from_iterable(
    (*range(start, start + 512), *range(start + 0xFE00, start + 0x10000)) for start in range(0x20000, 0x110000, 0x10000)
)

#: All characters of the first two planes, and 512 at each end of the others, whose middles have nothing new.
CHARACTERS = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000), *_LATER_PLANES)))

_CLASSES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\s"]


@cache
def edges() -> str:
    """Return the first and the last character of each run of characters of one class."""
    classes = bytearray(len(CHARACTERS))
    for number, expression in enumerate(_CLASSES, start=1):
        for run in regex.finditer(f"{expression}+", CHARACTERS):
            classes[run.start() : run.end()] = bytes([number]) * len(run[0])
    runs = re.finditer(rb"(.)\1*", classes, re.DOTALL)
    return "".join(CHARACTERS[index] for run in runs for index in {run.start(), run.end() - 1})
