"""Finding special tokens and separators in text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util import delimiters
from bpeflow._util.delimiters import Literals, Span


def longest_at(strings: list[bytes], text: bytes, start: int) -> Span | None:
    ends = [start + len(string) for string in strings if text.startswith(string, start)]
    return Span(start, max(ends)) if ends else None


@pytest.mark.parametrize("head", [2, 12])
@given(
    strings=st.lists(st.text("ab.", min_size=1, max_size=6).map(str.encode), max_size=6),
    text=st.text("ab.", max_size=30).map(str.encode),
    start=st.integers(0, 10),
)
def test_the_longest_at_each_position_is_found(head: int, strings: list[bytes], text: bytes, start: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimiters, "_HEAD", head)
        found = Literals(strings)
        expected = [span for position in range(start, len(text)) if (span := longest_at(strings, text, position))]
        assert [*found.occurrences(text, start)] == expected
        assert [*found.occurrences(memoryview(bytearray(text)), start)] == expected
        taken: list[Span] = []
        for span in expected:
            if not taken or span.start >= taken[-1].end:
                taken.append(span)
        assert [*found.matches(text, start)] == taken
        begins = (p for p in range(start, len(text)) if any(s != text[p:] and s.startswith(text[p:]) for s in strings))
        assert found.begins_at_end(text, start) == next(begins, len(text))
