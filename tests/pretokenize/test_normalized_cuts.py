"""Cuts of text that is normalized before it is split: the facts of the proof in `cuts`, and the cuts themselves."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import product

import pytest
from adversarial import adversarial_text
from characters import CHARACTERS
from hypothesis import given
from hypothesis import strategies as st
from normalized_text import NORMALIZERS, changed_text

from bpeflow.pretokenize import patterns as cuts
from bpeflow.pretokenize.cutter import load_cutter
from bpeflow.pretokenize.normalizer import load_normalizer
from bpeflow.pretokenize.patterns import NAMED_PATTERNS
from bpeflow.pretokenize.regex import load_pretokenizer

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]

#: Characters of each kind that the rules distinguish, before and after a cut, and what normalizing may make of them.
KINDS = "asZ1²'/!<=>.\t\n\r ´`¨\xa0\u2002\u3000éД\u0301\u0338\u0323\u3099\u1161\u11a8字のガがｶﾞ。ㅏ하，５①ﬁ≮😀\u037e"


@cache
def normalized_cut(name: str) -> re.Pattern[bytes]:
    return re.compile(cuts.NORMALIZED[NAMED_PATTERNS[name].cut])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_ascii_is_composed_with(form: str) -> None:
    for after in CHARACTERS:
        if form == "NFC" and (unicodedata.combining(after) or unicodedata.normalize("NFC", "e" + after)[0] != "e"):
            for character in map(chr, range(128)):
                first = unicodedata.normalize(form, character + after)[0]
                letter = character.isalpha() and unicodedata.category(first)[0] == "L"
                assert first == character or letter or (character in "<=>" and first in "≮≠≯")
        decomposed = unicodedata.normalize(form, after)
        assert after.isspace() or not decomposed[-1].isspace()
        assert after < "\u4000" or after > "\u9fff" or decomposed == after


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_composed_or_reordered_with_what_is_after_a_cut(form: str) -> None:
    after = [*map(chr, range(128)), "\u4000", "\u4e00", "\u9fff"]
    for character in CHARACTERS:
        if unicodedata.normalize(form, character) != character or unicodedata.combining(character):
            continue
        for w in after if character < "\u3400" else after[:1]:
            assert unicodedata.normalize(form, character + w) == character + w


def check_cuts(name: str, normalizer: tuple[str, ...], data: bytes) -> None:
    pretokenizer, normalize = load_pretokenizer(name), load_normalizer(normalizer)
    text = data.decode(errors="replace")
    whole = pretokenizer.pretokens(normalize(text))
    for match in normalized_cut(name).finditer(data):
        left, right = data[: match.start()].decode(errors="replace"), data[match.start() :].decode(errors="replace")
        assert normalize(left) + normalize(right) == normalize(text)
        assert pretokenizer.pretokens(normalize(left)) + pretokenizer.pretokens(normalize(right)) == whole


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids="+".join)
@given(data=st.data())
def test_cuts_keep_the_pretokens_of_normalized_text(normalizer: tuple[str, ...], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*NAMED_PATTERNS]))
    some_bytes = st.lists(st.binary(max_size=3) | st.sampled_from([c.encode() for c in KINDS]), max_size=20)
    text = data.draw((adversarial_text | changed_text | st.text(KINDS)).map(str.encode) | some_bytes.map(b"".join))
    check_cuts(name, normalizer, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMED_PATTERNS])
def test_cuts_at_every_transition_keep_the_pretokens_of_normalized_text(name: str) -> None:
    for x in KINDS:
        for w in KINDS:
            if normalized_cut(name).search((x + w).encode()):
                for before, after in product(("", "ガ", "1"), ("", "\u0301", "\u0338")):
                    for normalizer in (("nfc",), ("nfd",), ("nfkc", "lowercase")):
                        check_cuts(name, normalizer, (before + x + w + after).encode())


@pytest.mark.parametrize("name", [*NAMED_PATTERNS])
@pytest.mark.parametrize(
    "text", ["two words", "end. Start", "два слова", "한국어 텍스트", "x = 12;", "हिन्दी पाठ", "(a)\t{b}", "三。 四"]
)
def test_ordinary_text_can_be_cut(name: str, text: str) -> None:
    cutter = load_cutter(load_pretokenizer(name, normalizer="nfc"))
    assert cutter is not None
    assert cutter.find_cut(text.encode(), 1) is not None
    assert cutter.find_last_cut(text.encode()) is not None


@pytest.mark.parametrize("name", [*NAMED_PATTERNS])
def test_lines_without_spaces_can_be_cut(name: str) -> None:
    cutter = load_cutter(load_pretokenizer(name, normalizer=["nfkc"]))
    assert cutter is not None
    assert cutter.find_cut("中文。\n日本".encode(), 1) is not None


@pytest.mark.parametrize(("text", "form"), [("ガ.", "nfd"), ("ガ\n", "nfd"), ("word，", "nfkc")])
def test_cuts_that_normalizing_removes_are_not_found(text: str, form: str) -> None:
    plain, normalized = (
        load_cutter(load_pretokenizer("cl100k")),
        load_cutter(load_pretokenizer("cl100k", normalizer=form)),
    )
    assert plain is not None
    assert normalized is not None
    assert plain.find_cut(text.encode(), 1) is not None
    assert normalized.find_cut(text.encode(), 1) is None
