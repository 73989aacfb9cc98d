"""Documents end at delimiters, and are decoded as the policy for invalid UTF-8 says."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules import opened_text, rules, texts_of

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import Chunk
from bpeflow.corpus.documents import Delimiters, DocumentStatistics
from bpeflow.corpus.open_chunk import ChunkBuffer
from bpeflow.errors import ConfigError, CorpusError, InvalidUtf8Error

ALPHABET = "ab<|>\n é"

LINES = Delimiters("\n", ["<s>"])


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
    assert list(delimiters.occurrences(b"a|b")) == []


def test_the_longest_delimiter_is_measured_in_bytes() -> None:
    assert Delimiters("ab", ["é"]).longest == 2


def test_occurrences_may_overlap_and_are_the_longest_at_their_position() -> None:
    spans = [match.span() for match in Delimiters("aa", ["a", "ab"]).occurrences(b"aaab")]
    assert spans == [(0, 2), (1, 3), (2, 4)]


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
    occurrences = {match.span() for match in delimiters.occurrences(data)}
    assert {match.span() for match in delimiters.matches(data)} <= occurrences


def _decode(
    data: bytes, policy: InvalidUtf8Policy = "error", *, delimiters: Delimiters = LINES, ends_file: bool = True
) -> tuple[list[str], DocumentStatistics]:
    text_rules = replace(rules(policy=policy), delimiters=delimiters)
    texts, statistics = texts_of(opened_text(data, text_rules, ends_file, offset=1000))
    return [text.decode() for text in texts], statistics


def test_texts_are_the_text_between_delimiters() -> None:
    texts, statistics = _decode("ein<s>zwei\ndreißig".encode())
    assert texts == ["ein", "zwei", "dreißig"]
    assert statistics == DocumentStatistics(documents=2, skipped_documents=0, bytes=19)


def test_empty_texts_are_left_out_and_empty_documents_counted() -> None:
    assert _decode(b"\n\n<s>a<s>\n") == (["a"], DocumentStatistics(documents=3, bytes=10))


@pytest.mark.parametrize(("data", "documents"), [(b"a\nb", 2), (b"a\n", 1), (b"a\n<s>", 2), (b"", 0), (b"a", 1)])
def test_the_text_after_the_last_separator_is_a_document_unless_it_is_empty(data: bytes, documents: int) -> None:
    assert _decode(data)[1].documents == documents


def test_a_document_that_continues_in_the_next_chunk_is_counted_there() -> None:
    texts, statistics = _decode(b"a\nb", ends_file=False)
    assert (texts, statistics.documents) == (["a", "b"], 1)


def test_nothing_is_normalised() -> None:
    text = "\ufeffa\r\n e\u0301\x00"
    assert _decode(text.encode(), delimiters=Delimiters(None))[0] == [text]


def test_the_error_for_an_invalid_byte_gives_file_position_and_remedy() -> None:
    with pytest.raises(InvalidUtf8Error, match=r"corpus\.txt is not UTF-8 at byte 1006 .*replace.*skip") as caught:
        _decode(b"ok\n<s>\xff")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("data", "offset"), [(b"ab\xe6\x97", 1002), (b"\xe6\x97<s>\x97", 1000), (b"\xed\xa0\x80", 1000)]
)
def test_the_position_is_that_of_the_first_invalid_byte(data: bytes, offset: int) -> None:
    with pytest.raises(InvalidUtf8Error, match=f"at byte {offset} "):
        _decode(data)


@pytest.mark.parametrize("data", [b"\xff", b"a\xe6\x97b", b"\xc3", b"\xf0\x9f\x98\xff\x80"])
def test_replace_does_what_python_does(data: bytes) -> None:
    assert _decode(data, "replace") == (
        [data.decode(errors="replace")],
        DocumentStatistics(documents=1, bytes=len(data)),
    )


def test_skip_drops_the_whole_document_and_counts_it() -> None:
    texts, statistics = _decode(b"one\ntwo<s>\xff<s>three\nfour\n\xfe", "skip")
    assert texts == ["one", "four"]
    assert statistics == DocumentStatistics(documents=4, skipped_documents=2, bytes=26)


def test_skip_refuses_a_chunk_that_no_longer_ends_where_a_document_ends() -> None:
    with pytest.raises(CorpusError, match=r"corpus\.txt changed while it was read: no document ends at byte 1,007 any"):
        _decode(b"one\ntwo", "skip", ends_file=False)


def test_statistics_add_up() -> None:
    assert DocumentStatistics(1, 2, 3) + DocumentStatistics(10, 20, 30) == DocumentStatistics(11, 22, 33)


def test_a_chunk_is_read_at_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert ChunkBuffer().read(Chunk(str(path), 3, 4, False)) == b"3456"


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123")
    with pytest.raises(CorpusError, match="changed while it was read"):
        ChunkBuffer().read(Chunk(str(path), 3, 4, False))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read .*gone"):
        ChunkBuffer().read(Chunk(str(tmp_path / "gone"), 0, 1, True))
