"""Iterables of documents are a corpus; text in place of a path is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from corpus_forms import SEPARATOR

import bpeflow
from bpeflow.counting.count import CorpusCounts
from bpeflow.errors import BadRecordError, CorpusError, InputTypeError, InvalidUtf8Error


def test_an_iterable_is_consumed_in_the_calling_thread() -> None:
    threads = set()

    def documents() -> Iterator[str]:
        for number in range(1000):
            threads.add(threading.get_ident())
            yield f"document {number}"

    bpeflow.count(documents(), num_counter=3, chunk_size=100)
    assert threads == {threading.get_ident()}


def test_iterables_of_documents_are_a_corpus(documents: list[str], expected: CorpusCounts) -> None:
    specials = [SEPARATOR]
    assert bpeflow.count(iter(documents), special_tokens=specials) == expected.counts
    encoded = [document.encode() for document in documents]
    assert bpeflow.count(encoded, special_tokens=specials, num_counter=2, chunk_size=999) == expected.counts
    vocab, merges = bpeflow.train_bpe(iter(documents), 300, specials)
    assert (len(vocab), len(merges)) == (300, 43)
    tokenizer = bpeflow.Tokenizer.train((document for document in documents), 300, special_tokens=specials)
    assert list(tokenizer.merges) == merges


def test_mappings_with_the_text_in_a_field_are_documents() -> None:
    rows = [{"text": "a b", "n": 1}, {"text": "b"}]
    expected = {b"a": 1, b" b": 1, b"b": 1}
    assert dict(bpeflow.count(rows)) == dict(bpeflow.count(iter(rows))) == expected
    nested = [{"body": {"it": row["text"]}} for row in rows]
    assert dict(bpeflow.count(nested, text_field="body.it")) == expected
    trained = bpeflow.train({"input": (row for row in [*rows, {"n": 2}]), "vocab_size": 257, "bad_records": "skip"})
    assert dict(trained.counts) == expected
    assert trained.report.corpus is not None
    assert (trained.report.corpus.documents, trained.report.corpus.bad_records) == (2, 1)
    with pytest.raises(BadRecordError, match=r"document 1: no field 'text' \(found: 'n'\); set text_field"):
        bpeflow.train({"input": iter([{"text": "a"}, {"n": 1}]), "vocab_size": 257})


@pytest.mark.parametrize(
    "text", ["Once upon a time. " * 50_000, "two\nlines", "a\0b", "@home\nalone", "s3://" + "a " * 9999]
)
@pytest.mark.parametrize("as_list", [True, False])
def test_text_in_place_of_a_path_is_refused_with_the_remedy(text: str, as_list: bool) -> None:
    corpus: Any = [text, text] if as_list else text
    for use in (
        bpeflow.count,
        lambda corpus: bpeflow.train_bpe(corpus, 300, []),
        lambda corpus: bpeflow.Tokenizer.train(corpus, 300),
        lambda corpus: bpeflow.train({"input": corpus, "vocab_size": 300}),
    ):
        with pytest.raises(CorpusError, match=r"looks like text, not like a path: .* such as iter\(") as caught:
            use(corpus)
        assert len(str(caught.value)) < 300


def test_a_name_with_spaces_that_does_not_exist_may_be_text() -> None:
    with pytest.raises(CorpusError, match=r"the input low lower does not exist; .*; if it is text, .* iter\("):
        bpeflow.count(["low lower", "low"])


def test_items_that_are_not_documents_are_refused() -> None:
    with pytest.raises(InputTypeError, match="document 1 is a int"):
        bpeflow.count(iter(["a", 1]))  # type: ignore[list-item]
    with pytest.raises(InvalidUtf8Error, match="document 0: not UTF-8 at byte 1"):
        bpeflow.count([b"a\xff"])
    assert dict(bpeflow.count(iter(["a\ud800", "b"]), invalid_utf8="skip")) == {b"b": 1}
    assert dict(bpeflow.count(iter(["a\ud800"]), invalid_utf8="replace")) == {b"a": 1, "\ufffd".encode(): 1}


def test_an_exception_of_the_iterable_reaches_the_caller() -> None:
    def broken() -> Iterator[str]:
        yield "fine"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bpeflow.count(broken())
