"""Byte strings in one piece behave as the list of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.packed import PackedBytes

STRINGS = st.lists(st.binary(max_size=3), max_size=12)


@given(STRINGS)
def test_packed_strings_are_a_sequence(strings: list[bytes]) -> None:
    packed = PackedBytes.of(strings)
    assert [*packed] == strings
    assert (len(packed), packed.data) == (len(strings), b"".join(strings))
    assert packed.lengths.tolist() == [*map(len, strings)]
    assert [packed[i] for i in range(-len(strings), len(strings))] == [*strings, *strings]
    assert packed[1:-1] == tuple(strings[1:-1])
    with pytest.raises(IndexError):
        _ = packed[len(strings)]


@given(STRINGS, STRINGS)
def test_more_strings_come_after_the_others(strings: list[bytes], more: list[bytes]) -> None:
    assert [*PackedBytes.of(strings).plus(more)] == [*strings, *more]


@given(STRINGS, st.data())
def test_strings_are_left_out(strings: list[bytes], data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.sampled_from(range(len(strings))))) if strings else set()
    found = PackedBytes.of(strings).without(left_out)
    assert [*found] == [b"" if i in left_out else string for i, string in enumerate(strings)]
    assert found.data == b"".join(found)


@given(STRINGS, st.data())
def test_strings_are_replaced(strings: list[bytes], data: st.DataObject) -> None:
    others = data.draw(st.dictionaries(st.sampled_from(range(len(strings))), st.binary(max_size=3))) if strings else {}
    expected = [others.get(i, string) for i, string in enumerate(strings)]
    assert PackedBytes.of(strings).replaced(others) == PackedBytes.of(expected)
    assert (PackedBytes.of(strings) == PackedBytes.of(expected)) == (strings == expected)
    assert PackedBytes.of(strings) != strings


@given(STRINGS)
def test_the_first_string_of_each_byte_is_found(strings: list[bytes]) -> None:
    assert PackedBytes.of(strings).singles() == {s: strings.index(s) for s in strings if len(s) == 1}


@given(STRINGS, st.data())
def test_strings_are_taken_in_any_order(strings: list[bytes], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.sampled_from(range(len(strings))), max_size=20)) if strings else []
    taken = PackedBytes.of(strings).taken(np.array(indices, np.uint32))
    assert [*taken] == [strings[i] for i in indices]


@given(STRINGS, st.data())
def test_strings_are_placed_at_indices(strings: list[bytes], data: st.DataObject) -> None:
    count = len(strings)
    indices = data.draw(st.lists(st.integers(-1, count + 3), min_size=count, max_size=count))
    indices = data.draw(st.sampled_from([indices, sorted(indices), [*{*indices}]]))
    packed = PackedBytes.of(strings[: len(indices)])
    if len({*indices}) < len(indices) or not all(0 <= i < count + 2 for i in indices):
        with pytest.raises(ValueError, match="ind"):
            packed.placed(np.array(indices, np.int64), count + 2)
        return
    placed = packed.placed(np.array(indices, np.int64), count + 2)
    by_index = dict(zip(indices, strings, strict=False))
    assert [*placed] == [by_index.get(i, b"") for i in range(max(indices, default=-1) + 1)]
    assert placed.data == b"".join(placed)
