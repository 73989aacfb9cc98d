"""Merges in printable form, all at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable, to_printable
from bpeflow.errors import FormatError, NativeUnavailableError
from bpeflow.formats.printable import (
    bytes_of_forms,
    find_merge_ids,
    ids_by_form,
    merge_lines,
    read_merges,
    read_merges_natively,
    vocab_of_forms,
)
from bpeflow.vocab import Merge, Vocab


def place(index: int) -> str:
    return f"merge {index}"


@pytest.mark.parametrize("form", ["日", "\n", "", "\ud800"])
def test_a_form_with_another_character_is_found(form: str) -> None:
    ids = {"a": 0, form: 1, f"a{form}": 2}
    for merge in ("a b", f"a {form}", ["a", form], ["a"], ["a", 1], None):
        with pytest.raises(FormatError, match=r"merge 1: .*(is not|need two tokens, found)"):
            read_merges(["a a", merge], ids | {"aa": 3}, place)


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
    assert merge_lines(Vocab((), {}, merges)) == lines_of(merges)


def test_a_vocabulary_is_made_of_merges_in_printable_form() -> None:
    built = Vocab.build([(b" ", b"t"), (b" t", b"h")], ["Ġth", "<s>"], reuse_tokens=True)
    for special_tokens, merges in (({"<s>": 257}, built.merges[:1]), (built.special_tokens, built.merges)):
        lines = lines_of(merges).splitlines()
        expected = Vocab(built.tokens, special_tokens, merges)
        ids = ids_by_form(expected, Path("x"))
        merge_ids = find_merge_ids(lines, ids, place)
        made = vocab_of_forms(Path("x"), ids, special_tokens, lines, merge_ids)
        assert made == expected
        assert made.merge_ids.tolist() == expected.merge_ids.tolist()
        assert made.ordinary_tokens == expected.ordinary_tokens


@given(
    tokens=st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b" ", b"\x80", "Ġ".encode()]), min_size=1, max_size=6),
    specials=st.dictionaries(st.sampled_from(["a", "ab", "Ġ", "<s>", "日"]), st.integers(0, 7)),
)
def test_a_form_has_one_id(tokens: list[bytes], specials: dict[str, int]) -> None:
    """The ordinary token's, or else the special token's."""
    texts = {token_id % len(tokens): text for text, token_id in specials.items()}
    specials = {text: token_id for token_id, text in texts.items()}
    ordinary = [(to_printable(token), i) for i, token in enumerate(tokens) if token and i not in texts]
    vocab = Vocab(tokens, specials, ())
    if len({form for form, _ in ordinary}) < len(ordinary):
        with pytest.raises(FormatError, match=r"x: b.* has the ids . and .; the file can hold only one"):
            ids_by_form(vocab, Path("x"))
        return
    expected = specials | dict(ordinary)
    assert [*ids_by_form(vocab, Path("x")).items()] == sorted(expected.items(), key=lambda item: item[1])


def test_a_merge_without_an_id_is_found() -> None:
    with pytest.raises(FormatError, match="merge 0: 'ab' is not in the vocabulary"):
        find_merge_ids(["a b"], {"a": 97, "b": 98}, place)


SIDES = st.sampled_from(["a", "b", "Ġ", "ab", "Ġa", "Ġab" * 6, "c"])
MERGES: st.SearchStrategy[list[str] | list[str | list[str]]] = st.one_of(
    st.lists(st.tuples(SIDES, SIDES), max_size=8).map(lambda merges: [f"{a} {b}" for a, b in merges]),
    st.lists(st.one_of(st.text("ab \nĠ", max_size=8), st.lists(SIDES, max_size=3)), max_size=3),
)


@given(merges=MERGES, step=st.integers(1, 5))
def test_native_code_finds_the_same_merges(merges: list[Any], step: int) -> None:
    """In text of any form; with sides and results that have no id."""
    ids = {
        form: step * rank for rank, form in enumerate(["a", "Ġ", "b", "ab", "Ġa", "ba", "Ġab" * 6, "Ġab" * 12, "aa"])
    }
    try:
        found = read_merges_natively(merges, ids)
    except NativeUnavailableError as error:
        pytest.skip(str(error))
    try:
        expected = read_merges(merges, ids, place)
    except FormatError:
        assert found is None
    else:
        assert found is not None and found.tolist() == expected.tolist()


def test_a_form_with_a_line_end_has_no_merge() -> None:
    ids = {"a": 0, "b": 1, "ab": 2}
    for form in ("\n", "x\ny", "z\n"):
        assert find_merge_ids(["a b"], ids | {form: 3}, place).tolist() == [[0, 1, 2]]


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(FormatError, match="not in printable form"):
        find_merge_ids(["a \ud800"], {"a": 0, "\ud800": 1, "a\ud800": 2}, place)
