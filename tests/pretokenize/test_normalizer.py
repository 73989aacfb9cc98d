"""Normalizers change text as those of HuggingFace tokenizers do, and say where each character comes from."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from normalized_text import CHANGED_PARTS, NORMALIZERS, changed_text, huggingface_normalizer

from bpeflow.errors import ConfigError
from bpeflow.pretokenize import normalizer as module
from bpeflow.pretokenize.normalizer import load_normalizer

every_normalizer = pytest.mark.parametrize("names", NORMALIZERS, ids="+".join)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nfc", "nfd", "nfkc", "nfkd", "lowercase"])
def test_every_character_is_normalized_as_by_huggingface(name: str) -> None:
    """Characters of Unicode 3.2 always are; newer ones that only one library knows stay as they are."""
    text = "\n".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    normalized = load_normalizer(name)(text).split("\n")
    expected = huggingface_normalizer([name]).normalize_str(text).split("\n")
    for character, ours, theirs in zip(text.split("\n"), normalized, expected, strict=True):
        if ours != theirs:
            assert unicodedata.ucd_3_2_0.category(character) == "Cn"
            assert character in (ours, theirs)


@every_normalizer
@given(text=changed_text)
def test_text_is_normalized_as_by_huggingface(names: tuple[str, ...], text: str) -> None:
    theirs = huggingface_normalizer(names)
    known = "".join(c for c in text if load_normalizer(names)(c) == theirs.normalize_str(c))
    assert load_normalizer(names)(known) == theirs.normalize_str(known)


@every_normalizer
@given(text=changed_text)
def test_bytes_are_normalized_as_text(names: tuple[str, ...], text: str) -> None:
    normalizer = load_normalizer(names)
    data = text.encode()
    assert normalizer.utf8(data) == normalizer(text).encode()
    assert (normalizer.utf8(data) is data) == (normalizer(text) == text)
    if normalizer.keeps_ascii(data):
        assert normalizer(text) == text


def test_ascii_is_not_decoded() -> None:
    text = b"Plain ASCII\n" * 100
    with patch.object(module, "_STEPS", {}):
        assert load_normalizer("nfkc").utf8(text) is text
        with pytest.raises(KeyError):
            load_normalizer("nfkc").utf8(text + "é".encode())
    assert load_normalizer("nfc").keeps_ascii(text)
    assert not load_normalizer(["nfc", "lowercase"]).keeps_ascii(text)


def test_bytes_that_are_not_utf8_are_an_error() -> None:
    with pytest.raises(UnicodeDecodeError):
        load_normalizer("nfc").utf8(b"a\xff")
    assert load_normalizer().utf8(b"a\xff") == b"a\xff"


def test_lower_case_does_not_depend_on_the_context() -> None:
    assert load_normalizer("lowercase")("ΣΑΣ ΣΑΣ.") == "σασ σασ."
    assert load_normalizer("lowercase")("İ") == "i\u0307"


@pytest.mark.parametrize(
    ("names", "text", "normalized", "spans"),
    [
        ("nfc", "ae\u0301.", "aé.", [(0, 1), (1, 3), (3, 4)]),
        ("nfd", "aé.", "ae\u0301.", [(0, 1), (1, 2), (1, 2), (2, 3)]),
        ("nfd", "a\u0302\u0323b", "a\u0323\u0302b", [(0, 3), (0, 3), (0, 3), (3, 4)]),
        ("nfkc", "xﬁ½", "xfi1\u20442", [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3)]),
        ("nfkc", "ｶﾞ", "ガ", [(0, 2)]),
        ("nfkd", "ｶﾞ", "カ\u3099", [(0, 1), (1, 2)]),
        ("nfc", "\u1112\u1161\u11ab", "한", [(0, 3)]),
        (["nfkc", "lowercase"], "Ａ\u030a!", "å!", [(0, 2), (2, 3)]),
        (["nfd", "nfc"], "éa", "éa", [(0, 1), (1, 2)]),
        ([], "ab", "ab", [(0, 1), (1, 2)]),
    ],
)
def test_origins(names: str | list[str], text: str, normalized: str, spans: list[tuple[int, int]]) -> None:
    assert load_normalizer(names).origins(text) == (normalized, spans)


@every_normalizer
@given(text=changed_text)
def test_origins_cover_the_text_in_order(names: tuple[str, ...], text: str) -> None:
    normalizer = load_normalizer(names)
    normalized, spans = normalizer.origins(text)
    assert normalized == normalizer(text)
    assert len(spans) == len(normalized)
    bounds = [(0, 0), *spans, (len(text), len(text))]
    for (start, end), (next_start, next_end) in pairwise(bounds):
        assert start <= next_start <= end <= next_end
    for start, end in set(spans):
        part = [character for character, span in zip(normalized, spans, strict=True) if span == (start, end)]
        assert normalizer(text[start:end]) == "".join(part)


@every_normalizer
@given(text=changed_text)
def test_parts_of_normalized_text_are_normalized(names: tuple[str, ...], text: str) -> None:
    """Only then can a normalized text be encoded as a whole, before the special tokens in it are found."""
    normalizer = load_normalizer(names)
    normalized = normalizer(normalizer(text))
    if normalizer(normalized) == normalized:  # lower case and then another step may take longer
        assert all(normalizer(part) == part for part in (normalized[1:], normalized[:-1], normalized[2:5]))
        assert all(normalizer(left + right) == left + right for left, right in pairwise(normalized))


@given(texts=st.lists(st.sampled_from(CHANGED_PARTS), max_size=6))
def test_lines_are_normalized_together_as_one_by_one(texts: list[str]) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        text = "\n".join(texts)
        assert load_normalizer(form.lower()).utf8(text.encode()) == unicodedata.normalize(form, text).encode()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("NFC", "unknown normalizer 'NFC'; did you mean 'nfc'\\? there are: nfc, nfd, nfkc, nfkd, lowercase"),
        (["nfc", "strip"], "unknown normalizer 'strip'; there are: "),
        ([1], "unknown normalizer 1; "),
        (5, "normalizer is 5; it must be a name or a list of names"),
    ],
)
def test_unknown_normalizers_are_refused(names: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_normalizer(names)  # type: ignore[arg-type]
