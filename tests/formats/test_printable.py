"""Merges in printable form, all at once."""

from __future__ import annotations

import pytest

from bpeflow._util.byte_level import BYTE_CHARACTERS, from_printable, to_printable
from bpeflow.formats.printable import are_printable, bytes_of_forms, find_merge_ids, vocab_of_forms
from bpeflow.vocab import Vocab


@pytest.mark.parametrize("form", ["a b", "日", "\n", "", "\ud800"])
def test_a_form_with_another_character_is_found(form: str) -> None:
    assert not are_printable(["a", form, "b"])


def test_all_bytes_are_printable() -> None:
    assert are_printable([to_printable(bytes([byte])) for byte in range(256)])
    assert are_printable([])


def test_forms_become_bytes_all_at_once() -> None:
    forms = [*BYTE_CHARACTERS, BYTE_CHARACTERS, "", "Ġthe"]
    assert bytes_of_forms(forms) == [from_printable(form) for form in forms]
    assert bytes_of_forms([]) == []
    assert bytes_of_forms([""]) == [b""]


def test_all_other_characters_are_refused() -> None:
    """Up to those beyond the highest of the 256."""
    for code in range(0x200):
        assert (bytes_of_forms(["a", chr(code)]) is None) == (from_printable(chr(code)) is None)
    for character in ("\ud800", "日", "\U0010ffff"):
        assert bytes_of_forms(["a", character]) is None


def test_a_vocabulary_is_made_of_merges_in_printable_form() -> None:
    built = Vocab.build([(b" ", b"t"), (b" t", b"h")], ["Ġth", "<s>"], reuse_tokens=True)
    ids = {to_printable(token): token_id for token_id, token in enumerate(built.tokens)} | built.special_tokens
    for special_tokens, sides in (({"<s>": 257}, (["Ġ"], ["t"])), (built.special_tokens, (["Ġ", "Ġt"], ["t", "h"]))):
        made = vocab_of_forms(built.tokens, special_tokens, sides, find_merge_ids(sides, ids))
        expected = Vocab(built.tokens, special_tokens, built.merges[: len(sides[0])])
        assert made == expected
        assert made.merge_ids.tolist() == expected.merge_ids.tolist()
        assert made.ordinary_tokens == expected.ordinary_tokens


def test_a_merge_without_an_id_is_left_to_the_vocabulary() -> None:
    assert find_merge_ids((["a"], ["b"]), {"a": 97, "b": 98}) is None
    assert vocab_of_forms((b"x",), {}, (["Ġ"], ["b"]), None).merges == ((b" ", b"b"),)
