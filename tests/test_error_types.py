"""Errors of the Python interface: the built-in types they also have, and what they say of wrong arguments."""

from __future__ import annotations

import ast
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from pydantic import ValidationError

import bpeflow
from bpeflow import PretokenCounts, Tokenizer, Vocab, errors
from bpeflow._util.atomic import name_errors
from bpeflow.counting.segments import write_segment
from bpeflow.counting.shards import PARTITIONS, Shard
from bpeflow.errors import (
    AlreadyExistsError,
    BpeflowError,
    ConfigError,
    CorpusError,
    FormatError,
    InputTypeError,
    MissingLibraryError,
    ScratchError,
    TokenizerNotFoundError,
)

#: What messages are no place for: flags, except in a command that a message shows, and settings as YAML has them.
NOT_PYTHON = re.compile(r"(?<!\S)\(?--\w+|\b(?:use|add|give|\(or) \w+: \w+")


def test_messages_of_the_library_name_settings_as_keywords() -> None:
    package = Path(bpeflow.__file__).parent
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        docstrings = {ast.get_docstring(node, clean=False) for node in documented}
        formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        parts = {id(part) for node in formatted for part in ast.walk(node)}
        texts = [ast.unparse(node) for node in formatted]
        texts += [str(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in parts]
        for text in [] if path.parent.name == "cli" else texts:
            is_command = re.search(r"bpeflow \w+ --", text) or "pip install" in text or text.startswith(("--", "f'--"))
            assert text in docstrings or is_command or not NOT_PYTHON.search(text), (path, text)


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
        (lambda t, path: Tokenizer.train(iter(["a"]), 300, init_from=path / "nope"), FileNotFoundError),
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
        (lambda t: Tokenizer.train(5, 300), r"the corpus is 5: give a file"),
        (lambda t: t.with_special_tokens(5), r"special_tokens is 5; it must be a list of strings, or map them to ids"),
        (lambda t: t.encode("a", allowed_special="<a>"), r"it must be .*, such as \{'<a>'\}"),
        (
            lambda t: Tokenizer(t.vocab, t.merges, whole_tokens="yes"),
            r"whole_tokens is 'yes'; it must be True or False",
        ),
        (lambda t: t.decode_stream(5), r"a stream of ids must be an iterable of integers, not int"),
        (lambda t: list(t.decode_stream([65, "a"])), r"at index 1 of the stream: ids to decode must be"),
        (lambda t: Tokenizer.train(["corpus.txt", b"abc"], 280), r"a list of paths and documents \('corpus.txt' and"),
        (lambda t: bpeflow.count([{"text": "abc"}, Path("a.txt")]), r"a list of paths and documents \("),
        (lambda t: t.encode(b"abc"), r"text to encode must be a str, not bytes"),
        (lambda t: t.encode_batch([["a"]]), r"at index 0 .* a str, not list"),
        (lambda t: t.decode_batch("ab"), r"not str; encode and decode take a single one"),
        (lambda t: t.encode_batch(np.array("abc")), r"a batch must be a list, .* not ndarray"),
        (lambda t: t.encode_batch({"a": "b"}), r"a batch must be a list, or iterable in order, not dict"),
        (lambda t: t.encode_batch_to_numpy({"a"}), r"a batch must be a list, or iterable in order, not set"),
        (lambda t: t.encode_iterable(5), r"pieces of a text must be an iterable of str, not int"),
        (lambda t: t.encode_iterable("a"), r"must be an iterable of str, not str; for a single text use encode"),
        (lambda t: t.id_to_token("a"), r"an id is an integer, not str; for a token use token_to_id"),
        (lambda t: t.id_to_token(1.5), r"an id is an integer, not float"),
        (lambda t: 5 in t, r"a token is str or bytes, not int; for an id use id_to_token"),
        (lambda t: t.decode(np.int64(5)), r"not int64; for a single sequence use decode"),
        (
            lambda t: bpeflow.count(iter(["a"]), observer=print),
            r"observer is <built-in .*; it must be a bpeflow.Observer",
        ),
        (lambda t: bpeflow.learn_merges({5: 1}, 300), r"the pre-token 5 is int; it must be bytes or str"),
        (lambda t: bpeflow.learn_merges({"ab": 1}, 300, initial_merges=[("a", "b")]), r"merge 0 .* a pair of bytes"),
        (lambda t: bpeflow.Vocab.build(["ab"]), r"merge 0 is 'ab'; it must be a pair of bytes"),
        (lambda t: t.vocab.extend([(b"a", "b")]), r"merge 0 is \(b'a', 'b'\); it must be a pair of bytes"),
        (lambda t: bpeflow.Vocab.build([], [5]), r"special token 5 is int, not str"),
        (lambda t: t.encode_iterable({"a": 1}), r"pieces of a text must be an iterable of str, not dict"),
        (lambda t: t.decode_batch({0: [97]}), r"a batch must be a list, or iterable in order, not dict"),
        (lambda t: t.count_tokens(Path(__file__)), r"not PosixPath"),
        (lambda t: t.encode_documents(None, "a.bin"), r"documents is a single NoneType; pass a list"),
        (lambda t: bpeflow.evaluate(t, b"a.txt"), r"the corpus is b'a.txt': give a file"),
        (lambda t: bpeflow.evaluate(t, __file__, baseline=t), r"baseline is .*; it must be a path"),
        (lambda t: Tokenizer.load(""), r"source is ''; it must be a path"),
        (lambda t: t.save(""), r"path is ''; it must be a path"),
        (lambda t: Tokenizer.load(Tokenizer), r"cannot load a tokenizer from type"),
        (lambda t: bpeflow.train(None), r"config is None; it must be settings, a mapping of them, or a path"),
        (lambda t: bpeflow.train(["a.txt"]), r"config is .*; Tokenizer.train takes texts or files"),
        (lambda t: bpeflow.train("a.txt", vocab_size=300), r"no parameter 'vocab_size'; Tokenizer.train takes texts"),
        (lambda t: Tokenizer.from_files(5, "merges.txt"), r"vocab_filepath is 5; it must be a path"),
        (lambda t: Tokenizer.from_files("vocab.json", ""), r"merges_filepath is ''; it must be a path"),
        (lambda t: Vocab(5, {}, ()), r"token 0 is 5; it must be bytes"),
        (lambda t: Vocab({0: b"a"}, {}, ()), r"token 0 is 0; it must be bytes"),
        (lambda t: Vocab([b"a", "b"], {}, ()), r"token 1 is 'b'; it must be bytes"),
        (lambda t: Vocab([b"a"], ["<s>"], ()), r"must map strings to ids, not list; Vocab.build takes a list"),
        (lambda t: Vocab([b"a"], {}, [("a", "a")]), r"merge 0 is \('a', 'a'\); it must be a pair of bytes"),
        (lambda t: PretokenCounts.read(None), r"path is None; it must be a path"),
        (lambda t: PretokenCounts.load(5), r"path is 5; it must be a path"),
        (lambda t: PretokenCounts.from_mapping({"a": 1}).save(""), r"path is ''; it must be a path"),
        (lambda t: bpeflow.load_tokens(5), r"path is 5; it must be a path"),
        (lambda t: bpeflow.load_shards(None), r"path is None; it must be a path"),
    ],
)
def test_wrong_arguments_are_named(tokenizer: Tokenizer, call: Callable[[Tokenizer], Any], message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        call(tokenizer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vocab([b"a"], {"<s>": 7}, ()), "special_tokens: '<s>' with id 7: need a str and an id below 1"),
        (lambda: Vocab([b"a"], {"<s>": None}, ()), "special_tokens: '<s>' with id None: need a str and an id below 1"),
        (lambda: Vocab([b"a"], {"<s>": -1}, ()), "special_tokens: '<s>' with id -1"),
        (lambda: Vocab([b"a"], {}, np.array([[0, 0, 9]], np.uint32)), "merges as ids: need .* of ids below 1"),
        (
            lambda: Vocab([b"a"], {}, np.zeros((2, 2), np.uint32)),
            r"need an array of shape \(merges, 3\)",
        ),
        (lambda: Vocab([b"a"], {b"<s>": 0}, ()), "special_tokens: b'<s>' with id 0: need a str"),
        (lambda: Vocab([b"a"], {}, (), merge_counts=(1,)), "1 merge_counts for 0 merges"),
        (lambda: Vocab.build([(b"q", b"zz")]), "merge 0, b'q' .* has no token b'zz'"),
        (lambda: Vocab.build([]).extend([(b"a", b"b"), (b"q", b"zz")]), "merge 1, b'q' .* has no token b'zz'"),
        (lambda: Vocab.build([], ["<s>", "<t>", "<s>"]), "special token '<s>' is given twice"),
        (lambda: Tokenizer(Vocab.build([]), [], pattern=""), "the pattern is empty; use one of"),
        (lambda: bpeflow.count(__file__, ["<|end|>"]), r"the pattern is '<\|end\|>', a special token: give it in"),
        (lambda: Vocab.build([], [""]), "a special token must not be an empty string"),
        (lambda: Vocab.build([]).extend([], "\ud800"), "has a lone surrogate"),
    ],
)
def test_a_vocabulary_of_impossible_content_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((FormatError, ConfigError), match=message):
        call()


def test_a_corpus_in_place_of_a_config_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("some text\n", encoding="utf-8")
    for path in (tmp_path / "corpus.txt", tmp_path, tmp_path / "nope.txt"):
        with pytest.raises(
            ConfigError, match=r"; Tokenizer\.train takes texts or files of text, and settings as keywords$"
        ):
            bpeflow.train(path)
    with pytest.raises(FileNotFoundError, match=r"nope\.yaml: No such file or directory$"):
        bpeflow.train(tmp_path / "nope.yaml")


def test_a_folder_without_a_tokenizer_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TokenizerNotFoundError, match=f"{tmp_path}: no tokenizer in this folder"):
        Tokenizer.load(Path())


def test_the_ending_of_a_file_may_be_in_capitals(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for name in ("x.JSON", "x.Tiktoken"):
        tokenizer.save(tmp_path / name)
        assert (tmp_path / name).is_file()
        assert Tokenizer.load(tmp_path / name) == tokenizer


def test_a_missing_tokenizer_has_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(TokenizerNotFoundError, match=r"^o200k: no such file or folder$"):
        Tokenizer.load("o200k")
    with pytest.raises(TokenizerNotFoundError, match=r"no tokenizer in this folder; need one of [^;]*$"):
        Tokenizer.load(tmp_path)


def test_one_special_token_is_not_a_list_of_characters() -> None:
    vocab = bpeflow.Vocab.build([], "<s>")
    assert vocab.special_tokens == {"<s>": 256}
    assert vocab.extend([], "</s>").special_tokens == {"<s>": 256, "</s>": 257}


def test_integers_may_be_those_of_numpy(tokenizer: Tokenizer) -> None:
    vocab = {np.int64(token_id): token for token_id, token in tokenizer.vocab.items()}
    copy = Tokenizer(vocab, tokenizer.merges, tokenizer.special_tokens, cache_bytes=np.int64(1 << 20))
    assert copy == tokenizer
    matrix, _ = copy.encode_batch_to_numpy(["a"], padded=np.int32(3), num_threads=np.int64(1))
    assert matrix.shape == (1, 3)
    assert copy.id_to_token(np.uint16(97)) == b"a"


@pytest.mark.parametrize(
    ("setting", "hint"),
    [("num_workers", r" \(did you mean num_counter\?\)"), ("verbose", r" \(`bpeflow config` lists all settings\)")],
)
def test_settings_of_other_tools_get_no_misleading_hint(setting: str, hint: str) -> None:
    with pytest.raises(errors.UnknownSettingError, match=f"unknown setting {setting}{hint}"):
        Tokenizer.train(iter(["a"]), 300, **{setting: 1})


def test_each_function_is_given_its_own_setting_for_workers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(errors.UnknownSettingError, match=r"num_workers .did you mean num_threads"):
        tokenizer.encode_documents(["a"], tmp_path / "a.bin", num_workers=2)
    with pytest.raises(errors.UnknownSettingError, match=r"num_workers .did you mean threads\?"):
        bpeflow.learn_merges({"low": 5}, 258, num_workers=2)
    with pytest.raises(errors.UnknownSettingError, match=r"num_workers .`bpeflow config` lists"):
        bpeflow.evaluate(tokenizer, str(tmp_path), num_workers=2)


def test_an_unknown_setting_of_an_encoding_is_looked_up_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(errors.UnknownSettingError, match=r"verbose .`bpeflow help encode` lists all settings"):
        tokenizer.encode_documents(["a"], tmp_path / "a.bin", verbose=True)


def test_results_have_a_short_repr_and_ipython_shows_their_text(tokenizer: Tokenizer) -> None:
    report, explanation = bpeflow.evaluate({"a": tokenizer}, iter(["low"])), tokenizer.explain("low")
    assert repr(report) == "EvaluationReport(tokenizers=['a'], corpora=['input'])"
    assert repr(explanation) == "Explanation('low': 1 token in 1 pre-token)"
    for result in (report, explanation, bpeflow.train({"input": iter(["a"]), "vocab_size": 257})):
        printer = Mock()
        result._repr_pretty_(printer, False)
        printer.text.assert_called_once_with(str(result))


def test_a_tokenizer_in_the_way_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(AlreadyExistsError, match=r"tokenizer.json"):
        tokenizer.save(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skip_merge": True}, "skip_merge leaves no vocabulary for a tokenizer; use bpeflow.train"),
        ({"output": {"formats": ["tiktoken"]}}, "output: nothing is written without out_dir"),
        ({"output": {"report": True}}, "output: nothing is written without out_dir"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_read(settings: dict[str, Any], message: str) -> None:
    def documents() -> Iterator[str]:
        pytest.fail("read")
        yield ""

    with pytest.raises(errors.ConfigError, match=message):
        Tokenizer.train(documents(), 300, **settings)


def test_an_unknown_id_of_a_stream_is_named_with_its_index(tokenizer: Tokenizer) -> None:
    with pytest.raises(errors.UnknownTokenError, match=r"^at index 1 of the stream: unknown id 99999: the vocabulary"):
        list(tokenizer.decode_stream([65, 99999]))


def test_none_among_documents_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(errors.BadRecordError, match="document 1: it is None; use bad_records='skip'"):
        tokenizer.encode_documents(["a", None], tmp_path / "a.bin")  # type: ignore[list-item]
    assert tokenizer.encode_documents(["a", b"a"], tmp_path / "b.bin").documents == 2


def test_padding_says_what_it_lacks(tokenizer: Tokenizer) -> None:
    without = Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    with pytest.raises(
        errors.SpecialTokenError, match=r"no special token to pad with: give an id, as bpeflow.Padding\(pad_id=0\)"
    ):
        without.encode_batch_to_numpy(["a"], padded=True)
    with pytest.raises(errors.ConfigError, match=r"need an integer from 1 to 2\*\*31 - 1, or None"):
        bpeflow.Padding(2**31)
    with pytest.raises(errors.SpecialTokenError, match=r"'<\|pad\|>' is not .*; there are: '<\|endoftext\|>'"):
        tokenizer.encode("a", allowed_special={"<|pad|>"})


def test_the_files_beside_token_files_are_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.encode_documents(["abc"] * 8, tmp_path / "a.bin", shard_tokens=8, index=True)
    with pytest.raises(errors.FormatError, match=r"a_000000.bin.idx: is the name of an index; give the token file"):
        bpeflow.load_document_offsets(tmp_path / "a_000000.bin.idx")
    (tmp_path / "a_000001.bin").unlink()
    with pytest.raises(errors.TokenFileNotFoundError, match=r"a_000001.bin: shard 2 of 4 is missing: copy it"):
        bpeflow.load_shards(tmp_path / "a.bin")


def test_a_file_of_another_format_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "a.json")
    with pytest.raises(errors.ConfigError, match=r"a.json is not the name of a file in the gpt2 format"):
        tokenizer.save(tmp_path / "a.json", "gpt2")
