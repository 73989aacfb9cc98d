"""The scanner: same pre-tokens as the `regex` module, with every instruction set that this processor supports."""

from __future__ import annotations

from functools import cache

import numpy as np

from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.table import NativeTable, RegexTable
from bpeflow.pretokenize.native import NATIVE_PATTERNS, native_instructions
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer
from fuzzing.choices import Choices
from fuzzing.difference import must_equal
from fuzzing.text import make_text

_NO_DELIMITERS = Delimiters(None)


def check(data: bytes) -> None:
    choices = Choices(data)
    pattern = choices.one_of(tuple(NATIVE_PATTERNS))
    text = make_text(choices).encode()
    reference = RegexTable(pretokenizer(pattern))
    reference.count(text)
    # Memory that ends with the text, so that AddressSanitizer detects reads past the end.
    exact = memoryview(np.frombuffer(text, np.uint8).copy())
    for instructions in native_instructions():
        table = NativeTable(pattern, instructions)
        table.count_documents(exact, _NO_DELIMITERS)
        must_equal(f"{pattern}, {instructions}: {text!r}", table.shard(), reference.shard())


@cache
def pretokenizer(pattern: str) -> Pretokenizer:
    """Return the pre-tokenizer of a pattern, compiled once."""
    return load_pretokenizer(pattern)
