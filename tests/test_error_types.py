"""Errors of the Python interface: the built-in types they also have, and what they say of wrong arguments."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import bpeflow
from bpeflow import Tokenizer, errors
from bpeflow._util.atomic import name_errors
from bpeflow.counting.segments import write_segment
from bpeflow.counting.shards import PARTITIONS, Shard, explain_write_error
from bpeflow.errors import (
    AlreadyExistsError,
    BpeflowError,
    CorpusError,
    InputTypeError,
    MissingLibraryError,
    ScratchError,
)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.train(iter(["low lower lowest"]), vocab_size=262)


def used_up() -> Any:
    documents = iter(["a b"])
    list(documents)
    return documents


@pytest.mark.parametrize(
    ("call", "builtin"),
    [
        (lambda t, path: Tokenizer.train("nope.txt", 300), FileNotFoundError),
        (lambda t, path: Tokenizer.train(used_up(), 300), ValueError),
        (lambda t, path: Tokenizer.train(iter(["a"]), 300, pattern="(a"), ValueError),
        (lambda t, path: Tokenizer.train(iter(["a"]), 300, min_frequency=0), ValueError),
        (lambda t, path: Tokenizer.load(path / "nope"), FileNotFoundError),
        (lambda t, path: Tokenizer.load(__file__), ValueError),
        (lambda t, path: [t.save(path / "a"), t.with_special_tokens("<x>").save(path / "a")], FileExistsError),
        (lambda t, path: t.encode_to_numpy("a", dtype="int8"), ValueError),
        (lambda t, path: t.decode([70_000]), ValueError),
        (lambda t, path: t.encode(None), TypeError),
        (lambda t, path: Tokenizer.train(iter(["a"]), 300, min_freq=2), TypeError),
        (lambda t, path: bpeflow.train({"input": iter(["a"]), "vocab_sise": 300}), ValueError),
        (lambda t, path: bpeflow.train(path / "nope.yaml"), FileNotFoundError),
        (lambda t, path: bpeflow.learn_merges({"ab": 1 << 63}, 300), OverflowError),
    ],
)
def test_errors_are_also_what_python_calls_them(
    tokenizer: Tokenizer, tmp_path: Path, call: Callable[[Tokenizer, Path], Any], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin) as caught:
        call(tokenizer, tmp_path)
    assert isinstance(caught.value, BpeflowError)
    assert not isinstance(caught.value, ValidationError)


@pytest.mark.parametrize("name", sorted({*errors.__all__} - {"BpeflowError"}))
def test_every_error_is_of_a_built_in_kind(name: str) -> None:
    kind = getattr(errors, name)
    assert any(base.__module__ == "builtins" for base in set(kind.__mro__) - {Exception, BaseException, object})
    assert str(pickle.loads(pickle.dumps(kind("said")))) == "said"


def test_errors_with_an_explanation_are_not_explained_again(tmp_path: Path) -> None:
    """Some are an OSError, which has neither a number nor a file."""
    gone = Shard.in_file(range(PARTITIONS), [1] * PARTITIONS, [9] * PARTITIONS, Path(__file__))
    with pytest.raises(ScratchError, match=r"^cannot read back the counts in .*gone: No such file"):
        write_segment(tmp_path / "new", [replace(gone, path=tmp_path / "gone")])
    with pytest.raises(ScratchError, match=r"^read$"), explain_write_error(tmp_path):
        raise ScratchError("read")
    with pytest.raises(ScratchError, match=r"^read$"), name_errors(tmp_path):
        raise ScratchError("read")


def test_a_missing_library_is_an_import_error(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ImportError, match=r"tiktoken is not installed: pip install tiktoken") as caught:
        tokenizer.to_tiktoken()
    assert isinstance(caught.value, MissingLibraryError)


def test_an_iterable_that_was_used_before_is_recognised() -> None:
    with pytest.raises(
        CorpusError, match=r"the iterable gave no documents; if it is a generator, was it used before\?"
    ):
        bpeflow.count(used_up())


def test_no_special_tokens_may_be_none() -> None:
    assert Tokenizer.train(iter(["a b"]), 257, special_tokens=None).special_tokens == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: Tokenizer.train(None, 300), r"the corpus is None: give a file"),
        (lambda t: bpeflow.count(None), r"the corpus is None: give a file"),
        (lambda t: bpeflow.evaluate(t, None), r"the corpus is None: give a file"),
        (lambda t: bpeflow.evaluate(None, __file__), r"tokenizer 1 is NoneType; it must be a Tokenizer"),
        (lambda t: bpeflow.evaluate({"a": None}, __file__), r"a is NoneType; it must be a Tokenizer"),
        (lambda t: t.save(None), r"path is None; it must be a path"),
        (lambda t: t.encode_file(__file__, None), r"dst is None; it must be a path"),
        (lambda t: t.decode({1, 2}), r"ids to decode must be a sequence of integers, not set"),
        (lambda t: t.decode({1: 2}), r"ids to decode must be a sequence of integers, not dict"),
        (lambda t: t.decode_batch([1, 2]), r"at index 0 of the batch: .* not int; for a single sequence use decode"),
        (lambda t: t.encode_iterable(b"abc"), r"pieces of a text must be an iterable of str, not bytes"),
        (lambda t: t.encode_batch({"a": "b"}), r"a batch must be a list, not dict"),
        (lambda t: t.encode_batch_to_numpy({"a"}), r"a batch must be a list, not set"),
        (lambda t: t.encode_iterable(5), r"pieces of a text must be an iterable of str, not int"),
    ],
)
def test_wrong_arguments_are_named(tokenizer: Tokenizer, call: Callable[[Tokenizer], Any], message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        call(tokenizer)


def test_a_tokenizer_in_the_way_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(AlreadyExistsError, match=r"tokenizer.json"):
        tokenizer.save(tmp_path / "tokenizer.json")
