"""The training counts of merges travel with a tokenizer, and nothing else depends on them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from bpeflow import FormatError, Tokenizer, Vocab, train
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import tokenizer_hash

TEXT = "low low low lower newest newest widest"


@pytest.fixture
def trained() -> Tokenizer:
    tokenizer = Tokenizer.train(iter([TEXT]), vocab_size=262)
    assert tokenizer.vocab.merge_counts == (4, 4, 3, 3, 3)
    return tokenizer


def counts_of(tokenizer: Tokenizer) -> tuple[int | None, ...] | None:
    return tokenizer.vocab.merge_counts


def without_counts(tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer(tokenizer.vocab.annotated(merge_counts=None), tokenizer.merges)


def test_a_loaded_tokenizer_knows_them(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    assert '\n  "merge_counts": [4,4,3,3,3]\n' in (tmp_path / gpt2.TOKENIZER_FILE).read_text()
    loaded = Tokenizer.load(tmp_path)
    assert counts_of(loaded) == counts_of(trained)
    assert counts_of(pickle.loads(pickle.dumps(loaded))) == counts_of(trained)
    assert counts_of(loaded.with_special_tokens(["<x>"])) == counts_of(trained)
    assert counts_of(Tokenizer(loaded.vocab, loaded.merges)) == counts_of(trained)


def test_files_without_them_load(trained: Tokenizer, tmp_path: Path) -> None:
    without_counts(trained).save(tmp_path)
    assert "merge_counts" not in json.loads((tmp_path / gpt2.TOKENIZER_FILE).read_text())
    assert counts_of(Tokenizer.load(tmp_path)) is None


def test_each_size_of_a_run_has_those_of_its_merges(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT)
    result = train({"input": str(tmp_path / "corpus.txt"), "vocab_sizes": [259, 262], "out_dir": str(tmp_path / "run")})
    assert result.vocab is not None
    assert result.vocab.merge_counts == (4, 4, 3, 3, 3)
    assert counts_of(Tokenizer.load(tmp_path / "run")) == (4, 4, 3, 3, 3)
    assert counts_of(Tokenizer.load(tmp_path / "run" / "vocab_259")) == (4, 4)
    again = train({"out_dir": str(tmp_path / "run"), "resume": True})  # finds the finished run
    assert again.vocab is not None
    assert again.vocab.merge_counts == (4, 4, 3, 3, 3)


def test_the_merges_of_an_extended_tokenizer_keep_theirs(trained: Tokenizer) -> None:
    extended = train({"input": iter(["widest widest"]), "init_from": trained, "vocab_size": 264})
    assert extended.vocab is not None
    assert extended.vocab.merge_counts == (*(trained.vocab.merge_counts or ()), 2, 2)
    unchanged = train({"input": iter(["widest"]), "init_from": trained, "vocab_size": 262})
    assert unchanged.vocab is not None
    assert unchanged.vocab.merge_counts == trained.vocab.merge_counts


def test_extending_a_vocabulary_by_hand(trained: Tokenizer) -> None:
    extended = trained.vocab.extend([(b"e", b"r")], ["<x>"])
    assert extended.merge_counts == (4, 4, 3, 3, 3, None)
    assert Vocab.build([(b"a", b"b")]).extend([(b"e", b"r")]).merge_counts is None


def test_other_merges_do_not_have_them(trained: Tokenizer) -> None:
    assert counts_of(Tokenizer(trained.vocab, trained.merges[:2])) is None


def test_tokenizers_are_equal_without_them(trained: Tokenizer) -> None:
    plain = without_counts(trained)
    assert counts_of(plain) is None
    assert plain == trained
    assert plain.vocab == trained.vocab
    assert plain.to_spec() == trained.to_spec()
    assert tokenizer_hash(plain.to_spec()) == tokenizer_hash(trained.to_spec())


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2], "2 merge_counts, but there are 5 merges"),
        ({}, "need a list of counts"),
        ([1, 2, 3, 4, -5], "need a list of counts"),
        ([1, 2, 3, 4, "5"], "need a list of counts"),
        ([1, 2, 3, 4, True], "need a list of counts"),
    ],
)
def test_damaged_counts_are_refused(trained: Tokenizer, tmp_path: Path, counts: Any, message: str) -> None:
    trained.save(tmp_path)
    path = tmp_path / gpt2.TOKENIZER_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"merge_counts": counts}))
    with pytest.raises(FormatError, match=message):
        Tokenizer.load(tmp_path)
