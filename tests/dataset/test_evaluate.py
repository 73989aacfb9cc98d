"""The metrics of the evaluation equal their definitions."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_corpora import EOT, MERGES, PAD, EncodingRecorder, contents_utf8, make_tokenizer, write_files

from bpeflow.corpus.delimiters import Delimiters
from bpeflow.dataset import evaluate
from bpeflow.dataset.encode import find_in_order
from bpeflow.dataset.evaluate import CorpusText, count_text, describe, evaluate_all, longest_tokens
from bpeflow.dataset.facade import Tokenizer
from bpeflow.errors import ConfigError, CorpusError


@pytest.mark.slow
@pytest.mark.parametrize("separator", [EOT, None])
@given(contents=st.lists(contents_utf8, min_size=1, max_size=3), chunk_size=st.integers(1, 60))
def test_words_are_counted_correctly_across_chunks(
    separator: str | None, contents: list[bytes], chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = find_in_order(write_files(Path(mkdtemp(dir=tmp_path_factory.getbasetemp())), contents))
    documents: list[str] = []
    for content in contents:
        parts = content.decode().split(separator) if separator else [content.decode()]
        documents += parts if parts[-1] else parts[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_CHUNK_SIZE", chunk_size)
        text = count_text(files, Delimiters(separator, (PAD,)))
    assert text == CorpusText(
        bytes=sum(len(document.encode()) for document in documents),
        words=sum(len(document.split()) for document in documents),
        documents=len(documents),
    )


@pytest.mark.slow
@given(contents=st.lists(contents_utf8, min_size=1, max_size=3), chunk_size=st.integers(1, 60))
def test_tokens_are_those_of_the_documents(
    contents: list[bytes], chunk_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    write_files(folder, contents)
    tokenizer = make_tokenizer()
    ids = [i for content in contents for part in content.decode().split(EOT) for i in tokenizer.encode(part)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_CHUNK_SIZE", chunk_size)
        [metrics] = evaluate_all({"mine": tokenizer}, [str(folder)])
    assert metrics.tokens == len(ids)
    assert metrics.used_tokens == len(set(ids))
    assert metrics.single_byte_tokens == sum(len(tokenizer.vocab.tokens[i]) == 1 for i in ids)


def test_derived_metrics(tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello hello" + EOT.encode() + b"x", b""])
    metrics, empty = evaluate_all({"mine": make_tokenizer()}, [str(path) for path in paths])
    derived = metrics.to_dict()
    assert (derived["bytes_per_token"], derived["tokens_per_word"]) == (12 / 4, 4 / 3)  # hello, space, hello, x
    assert derived["single_byte_share"] == 2 / 4
    assert derived["bytes_per_second"] == 12 / metrics.seconds
    assert derived["seconds_for_82_gb"] == pytest.approx(82e9 * metrics.seconds / 12)
    assert empty.text == CorpusText(0, 0, 0)
    assert {empty.to_dict()[name] for name in ("bytes_per_token", "tokens_per_word", "seconds_for_82_gb")} == {None}


def test_text_that_is_not_utf8_is_evaluated(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello \xff"])
    [metrics] = evaluate_all({"mine": make_tokenizer()}, [str(path)])
    assert (metrics.text.bytes, metrics.text.words, metrics.tokens) == (7, 2, 1 + 1 + 3)


def test_the_longest_tokens_exclude_special_tokens(tmp_path: Path) -> None:
    assert longest_tokens(make_tokenizer(), 3) == [(259, b"hello"), (258, b"hell"), (256, b"he")]


def test_every_tokenizer_is_evaluated_on_every_corpus(tmp_path: Path) -> None:
    corpora = [str(path) for path in write_files(tmp_path, [b"hello", b"there"])]
    tokenizers = {"a[b]": make_tokenizer(), "custom": make_tokenizer(r"\w", special_tokens=())}
    progress = EncodingRecorder()
    evaluations = evaluate_all(tokenizers, corpora, observer=progress)
    assert [(row.corpus, row.tokenizer) for row in evaluations] == [(c, t) for c in corpora for t in tokenizers]
    assert progress.reports == [(5, 20), (10, 20), (15, 20), (20, 20)]
    described = describe(evaluations, tokenizers)
    assert described["evaluations"] == [row.to_dict() for row in evaluations]
    assert described["tokenizers"][1]["longest_tokens"][0] == {
        "id": 259, "bytes": 5, "text": "hello", "hex": b"hello".hex(),
    }  # fmt: skip
    assert len(MERGES) + 256 == described["tokenizers"][1]["vocab_size"]


@pytest.mark.parametrize(("arguments", "error"), [(({}, ["x"]), ConfigError), (({"t": None}, ["none"]), CorpusError)])
def test_missing_tokenizers_or_inputs_are_errors(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        evaluate_all(*arguments)
    with pytest.raises(ConfigError):
        evaluate_all({"mine": Tokenizer(dict(enumerate(bytes([i]) for i in range(256))), [])}, [])
