"""Compiled patterns: random ones cut texts as the `regex` module does, with any policy for unmatched text.

Safe cuts keep the pre-tokens.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import numpy as np
import regex

from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.table import NativeTable, RegexTable
from bpeflow.errors import PatternError
from bpeflow.pretokenize.cutter import NativeCutter, PythonCutter
from bpeflow.pretokenize.native import why_not_compiled
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer
from fuzzing.choices import Choices
from fuzzing.difference import must_equal
from fuzzing.text import make_text

_SETS = (
    r"\p{L}",
    r"\p{N}",
    r"\s",
    r"\S",
    r"\p{Lu}",
    r"[^\s\p{L}\p{N}]",
    r"[\r\n]",
    "[a-z]",
    ".",
    " ",
    "'",
    "a",
    "(?i:s)",
    "日",
)
_REPEATS = ("", "", "?", "*", "+", "{1,3}", "{2}", "??", "+?", "?+", "++", "{1,3}+")
_NEXT = ("", "", "", r"(?!\S)", r"(?=\p{L})", r"(?!a|\Z)", r"\Z")
_SECONDS = 0.2


def check(data: bytes) -> None:
    choices = Choices(data)
    splitter = _splitter(tuple(_pattern(choices) for _ in range(choices.one_of((1, 1, 2, 3)))), choices.below(2))
    if splitter is None:
        return
    text = make_text(choices)[:1000]
    try:
        for step in splitter.regex if isinstance(splitter.regex, tuple) else (splitter.regex,):
            regex.compile(step).findall(text, timeout=_SECONDS)
    except TimeoutError:  # native code takes linear time
        return
    reference, table = RegexTable(splitter), NativeTable(splitter)
    reference.count(text.encode())
    # Memory that ends with the text, so that AddressSanitizer detects reads past the end.
    exact = memoryview(np.frombuffer(text.encode(), np.uint8).copy())
    table.count_documents(exact, Delimiters(None))
    case = f"{splitter!r}: {text!r}"
    must_equal(case, table.shard(), reference.shard())
    must_equal(case, table.statistics, reference.statistics)
    _check_cut(splitter, text.encode(), choices.below(len(text) + 1), case)


def _check_cut(splitter: Pretokenizer, data: bytes, start: int, case: str) -> None:
    cut = NativeCutter(splitter).find_cut(memoryview(np.frombuffer(data, np.uint8).copy()), start)
    must_equal(case, cut, PythonCutter(splitter).find_cut(data, start))
    pieces = [piece.decode() for piece in (data[:cut], data[cut:])] if cut else [data.decode()]
    must_equal(case, [*chain(*map(splitter.pretokens, pieces))], splitter.pretokens(data.decode()))


def _pattern(choices: Choices) -> str:
    return "|".join(_branch(choices) for _ in range(1 + choices.below(3)))


def _branch(choices: Choices) -> str:
    items = (choices.one_of(_SETS) + choices.one_of(_REPEATS) for _ in range(1 + choices.below(3)))
    return "".join(items) + choices.one_of(_NEXT)


@lru_cache(1000)
def _splitter(steps: tuple[str, ...], drops: bool) -> Pretokenizer | None:
    """Return the pre-tokenizer of a pattern; None if it is invalid or cannot be compiled."""
    try:
        splitter = load_pretokenizer(steps, "drop" if drops else "isolate")
    except PatternError:
        return None
    return splitter if why_not_compiled(splitter) is None else None
