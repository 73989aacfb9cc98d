"""Documents end at delimiters."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import Delimiters, DocumentStatistics
from bpeflow.errors import ConfigError

ALPHABET = "ab<|>\n é"


def _documents(delimiters: Delimiters, data: bytes) -> list[list[bytes]]:
    return [[data[start:end] for start, end in document.pieces] for document in delimiters.documents(data)]


def test_a_separator_ends_a_document_and_a_special_token_splits_inside_it() -> None:
    delimiters = Delimiters("||", ["<s>"])
    documents = list(delimiters.documents(b"a<s>b||c"))
    assert [document.closed for document in documents] == [True, False]
    assert _documents(delimiters, b"a<s>b||c") == [[b"a", b"b"], [b"c"]]


def test_an_empty_document_counts_unless_it_is_the_last() -> None:
    assert _documents(Delimiters("|"), b"||a|") == [[b""], [b""], [b"a"]]
    assert _documents(Delimiters("|"), b"") == []


def test_the_longest_of_several_delimiters_at_a_position_wins() -> None:
    assert _documents(Delimiters("<e>", ["<", "<e><x>"]), b"1<e><x>2<e>3<4") == [[b"1", b"2"], [b"3", b"4"]]


def test_the_leftmost_delimiter_wins_over_a_longer_one_that_begins_later() -> None:
    assert _documents(Delimiters("ab", ["bcd"]), b"abcd") == [[b""], [b"cd"]]


def test_matches_of_a_delimiter_do_not_overlap() -> None:
    assert _documents(Delimiters("\n\n"), b"a\n\n\nb") == [[b"a"], [b"\nb"]]


def test_a_special_token_that_contains_the_separator_does_not_end_the_document() -> None:
    assert _documents(Delimiters("|", ["<|>"]), b"a<|>b|c") == [[b"a", b"b"], [b"c"]]


def test_the_separator_may_also_be_a_special_token() -> None:
    assert _documents(Delimiters("|", ["|", "|"]), b"a|b") == [[b"a"], [b"b"]]


def test_delimiters_are_text_not_regular_expressions() -> None:
    assert _documents(Delimiters(None, ["a.c", "(", "\\d"]), b"abca.c1(2\\d") == [[b"abc", b"1", b"2", b""]]


@pytest.mark.parametrize("delimiters", [Delimiters(None), Delimiters(None, [])])
def test_without_delimiters_everything_is_one_piece(delimiters: Delimiters) -> None:
    assert _documents(delimiters, b"a|b\n") == [[b"a|b\n"]]
    assert delimiters.longest == 0
    assert list(delimiters.literals.occurrences(b"a|b")) == []


def test_the_longest_delimiter_is_measured_in_bytes() -> None:
    assert Delimiters("ab", ["é"]).longest == 2


def test_occurrences_may_overlap_and_are_the_longest_at_their_position() -> None:
    assert [*Delimiters("aa", ["a", "ab"]).literals.occurrences(b"aaab")] == [(0, 2), (1, 3), (2, 4)]


@pytest.mark.parametrize(("separator", "special_tokens"), [("", []), (None, ["a", ""]), ("a", ["\ud800"])])
def test_empty_or_unencodable_delimiters_are_errors(separator: str | None, special_tokens: list[str]) -> None:
    with pytest.raises(ConfigError):
        Delimiters(separator, special_tokens)


def test_a_pickled_copy_is_equal_and_finds_the_same() -> None:
    delimiters = Delimiters("|", ["<s>"])
    copy = pickle.loads(pickle.dumps(delimiters))
    assert copy == delimiters
    assert _documents(copy, b"a<s>b|c") == [[b"a", b"b"], [b"c"]]


@given(
    data=st.text(ALPHABET, max_size=30).map(str.encode),
    separator=st.none() | st.text(ALPHABET, min_size=1, max_size=3),
    special_tokens=st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=4),
)
def test_occurrences_include_all_matches(data: bytes, separator: str | None, special_tokens: list[str]) -> None:
    delimiters = Delimiters(separator, special_tokens)
    assert {*delimiters.literals.matches(data)} <= {*delimiters.literals.occurrences(data)}


def test_statistics_add_up() -> None:
    assert DocumentStatistics(1, 2, 3) + DocumentStatistics(10, 20, 30) == DocumentStatistics(11, 22, 33)
