"""Chunks are read at their place, and their documents decoded as the policy for invalid UTF-8 says."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from rules import opened_text, rules, texts_of

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.documents import Chunk, Delimiters, DocumentStatistics
from bpeflow.corpus.open_chunk import ChunkBuffer
from bpeflow.errors import CorpusError, InvalidUtf8Error

LINES = Delimiters("\n", ["<s>"])


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
