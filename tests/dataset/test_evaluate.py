"""The figures that tokenizers are compared by are those of their definitions."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_encode_decode import EOT, MERGES, PAD, VALID, make_tokenizer, write_files

from bpeflow.corpus.delimiters import Delimiters
from bpeflow.dataset import evaluate
from bpeflow.dataset.encode import find_in_order
from bpeflow.dataset.evaluate import CorpusText, describe, evaluate_all, longest_tokens, read_text
from bpeflow.dataset.facade import Tokenizer
from bpeflow.errors import ConfigError, CorpusError


@pytest.mark.parametrize("separator", [EOT, None])
@given(contents=st.lists(VALID, min_size=1, max_size=3), chunk_size=st.integers(1, 60))
def test_words_stand_between_white_space_whatever_the_chunks(
    separator: str | None, contents: list[bytes], chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = find_in_order(write_files(Path(mkdtemp(dir=tmp_path_factory.getbasetemp())), contents))
    documents: list[str] = []
    for content in contents:
        parts = content.decode().split(separator) if separator else [content.decode()]
        documents += parts if parts[-1] else parts[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_CHUNK_SIZE", chunk_size)
        text = read_text(files, Delimiters(separator, (PAD,)))
    assert text == CorpusText(
        bytes=sum(len(document.encode()) for document in documents),
        words=sum(len(document.split()) for document in documents),
        documents=len(documents),
    )


@pytest.mark.slow
@given(contents=st.lists(VALID, min_size=1, max_size=3), chunk_size=st.integers(1, 60))
def test_tokens_are_those_of_the_documents(
    contents: list[bytes], chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    write_files(folder, contents)
    tokenizer = make_tokenizer()
    ids = [i for content in contents for part in content.decode().split(EOT) for i in tokenizer.encode(part)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_CHUNK_SIZE", chunk_size)
        [figures] = evaluate_all({"mine": tokenizer}, [str(folder)])
    assert figures.tokens == len(ids)
    assert figures.used_tokens == len(set(ids))
    assert figures.single_byte_tokens == sum(len(tokenizer.vocab.tokens[i]) == 1 for i in ids)


def test_the_derived_figures(tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello hello" + EOT.encode() + b"x", b""])
    figures, empty = evaluate_all({"mine": make_tokenizer()}, [str(path) for path in paths])
    derived = figures.to_dict()
    assert (derived["bytes_per_token"], derived["tokens_per_word"]) == (12 / 4, 4 / 3)  # hello, space, hello, x
    assert derived["single_byte_share"] == 2 / 4
    assert derived["bytes_per_second"] == 12 / figures.seconds
    assert derived["seconds_for_82_gb"] == pytest.approx(82e9 * figures.seconds / 12)
    assert empty.text == CorpusText(0, 0, 0)
    assert {empty.to_dict()[name] for name in ("bytes_per_token", "tokens_per_word", "seconds_for_82_gb")} == {None}


def test_text_that_is_not_utf8_is_measured_all_the_same(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello \xff"])
    [figures] = evaluate_all({"mine": make_tokenizer()}, [str(path)])
    assert (figures.text.bytes, figures.text.words, figures.tokens) == (7, 2, 1 + 1 + 3)


def test_the_longest_tokens_are_of_text(tmp_path: Path) -> None:
    assert longest_tokens(make_tokenizer(), 3) == [(259, b"hello"), (258, b"hell"), (256, b"he")]


def test_every_tokenizer_meets_every_corpus(tmp_path: Path) -> None:
    corpora = [str(path) for path in write_files(tmp_path, [b"hello", b"there"])]
    tokenizers = {"a[b]": make_tokenizer(), "custom": make_tokenizer(r"\w", special_tokens=())}
    told: list[tuple[int, int]] = []
    evaluations = evaluate_all(tokenizers, corpora, progress=lambda *at: told.append(at))
    assert [(row.corpus, row.tokenizer) for row in evaluations] == [(c, t) for c in corpora for t in tokenizers]
    assert told == [(5, 20), (10, 20), (15, 20), (20, 20)]
    described = describe(evaluations, tokenizers)
    assert described["evaluations"] == [row.to_dict() for row in evaluations]
    assert described["tokenizers"][1]["longest_tokens"][0] == {
        "id": 259, "bytes": 5, "text": "hello", "hex": b"hello".hex(),
    }  # fmt: skip
    assert len(MERGES) + 256 == described["tokenizers"][1]["vocab_size"]


@pytest.mark.parametrize(("arguments", "error"), [(({}, ["x"]), ConfigError), (({"t": None}, ["none"]), CorpusError)])
def test_there_must_be_something_to_evaluate(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        evaluate_all(*arguments)
    with pytest.raises(ConfigError):
        evaluate_all({"mine": Tokenizer(dict(enumerate(bytes([i]) for i in range(256))), [])}, [])
