"""Merges in printable form, all at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable, to_printable
from bpeflow.errors import NativeUnavailableError
from bpeflow.formats.printable import (
    are_printable,
    bytes_of_forms,
    find_bad_merge,
    find_merge_ids,
    ids_by_form,
    look_up,
    merge_lines,
    read_merges_natively,
    split_merges,
    vocab_of_forms,
)
from bpeflow.vocab import Merge, Vocab


@pytest.mark.parametrize("form", ["a b", "日", "\n", "", "\ud800"])
def test_a_form_with_another_character_is_found(form: str) -> None:
    assert not are_printable(["a", form, "b"])


def test_all_bytes_are_printable() -> None:
    assert are_printable([to_printable(bytes([byte])) for byte in range(256)])
    assert are_printable([])


def test_forms_become_bytes_all_at_once() -> None:
    forms = [*BYTE_CHARACTERS, BYTE_CHARACTERS, "", "Ġthe"]
    for some in (forms, [], [""]):
        found = bytes_of_forms(some)
        assert found is not None
        assert [*found] == [from_printable(form) for form in some]


def test_all_other_characters_are_refused() -> None:
    """Up to those beyond the highest of the 256."""
    for code in range(0x200):
        assert (bytes_of_forms(["a", chr(code)]) is None) == (from_printable(chr(code)) is None)
    for character in ("\ud800", "日", "\U0010ffff"):
        assert bytes_of_forms(["a", character]) is None


def lines_of(merges: Iterable[Merge]) -> str:
    return "".join(f"{to_printable(left)} {to_printable(right)}\n" for left, right in merges)


@given(st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4))))
def test_merges_become_lines_all_at_once(merges: list[Merge]) -> None:
    assert merge_lines(merges) == lines_of(merges)


def test_a_vocabulary_is_made_of_merges_in_printable_form() -> None:
    built = Vocab.build([(b" ", b"t"), (b" t", b"h")], ["Ġth", "<s>"], reuse_tokens=True)
    for special_tokens, merges in (({"<s>": 257}, built.merges[:1]), (built.special_tokens, built.merges)):
        lines = lines_of(merges)
        expected = Vocab(built.tokens, special_tokens, merges)
        ids, hidden = ids_by_form(expected)
        merge_ids = find_merge_ids(lines, ids)
        assert merge_ids is not None
        made = vocab_of_forms(Path("x"), ids, special_tokens, lines, merge_ids, hidden)
        assert made == expected
        assert made.merge_ids.tolist() == expected.merge_ids.tolist()
        assert made.ordinary_tokens == expected.ordinary_tokens


def test_a_merge_without_an_id_is_found() -> None:
    assert find_merge_ids("a b\n", {"a": 97, "b": 98}) is None
    assert find_bad_merge(["a b"], {"a": 97, "b": 98}) == (0, "'ab' is not in the vocabulary")


SIDES = st.sampled_from(["a", "b", "Ġ", "ab", "Ġa", "Ġab" * 6, "c"])
LINES = st.one_of(
    st.lists(st.tuples(SIDES, SIDES), max_size=8).map(lambda merges: "".join(f"{a} {b}\n" for a, b in merges)),
    st.text("ab \nĠ", max_size=8),
)


@given(lines=LINES, step=st.integers(1, 5))
def test_native_code_finds_the_same_merges(lines: str, step: int) -> None:
    """In text of any form; with sides and results that have no id."""
    ids = {
        form: step * rank for rank, form in enumerate(["a", "Ġ", "b", "ab", "Ġa", "ba", "Ġab" * 6, "Ġab" * 12, "aa"])
    }
    try:
        found = read_merges_natively(lines, ids)
    except NativeUnavailableError as error:
        pytest.skip(str(error))
    sides = split_merges(lines)
    expected = None if sides is None else look_up(sides, ids)
    assert (found is None) == (expected is None)
    assert found is None or expected is None or found.tolist() == expected.tolist()


def test_a_form_with_a_line_end_has_no_merge() -> None:
    ids = {"a": 0, "b": 1, "ab": 2}
    for form in ("\n", "x\ny", "z\n"):
        found = find_merge_ids("a b\n", ids | {form: 3})
        assert found is None or found.tolist() == [[0, 1, 2]]


def test_a_lone_surrogate_is_left_to_the_caller() -> None:
    assert find_merge_ids("a \ud800\n", {"a": 0, "\ud800": 1, "a\ud800": 2}) is None
