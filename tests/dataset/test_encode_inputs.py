"""Whatever can be trained on can be encoded: files with all their settings, sources, and documents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_corpora import CUSTOM, EOT, PAD, contents_utf8, make_tokenizer, read_documents, write_files

import bpeflow
from bpeflow.cli.main import main
from bpeflow.dataset import corpus_encoder
from bpeflow.dataset.corpus_encoder import ChunkEncoder
from bpeflow.dataset.encode import encode_documents, encode_file
from bpeflow.dataset.token_file import load_tokens, sidecar_path
from bpeflow.errors import BadRecordError, CorpusError, InputTypeError
from bpeflow.tokenizer.tokenizer import Tokenizer


class Rows:
    """Like a HuggingFace dataset: an iterable of mappings that is neither a list nor an iterator."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "train.bin"


@pytest.fixture
def tokenizer(out: Path) -> Tokenizer:
    out.parent.mkdir()
    return make_tokenizer()


def text_of(tokenizer: Tokenizer, path: Path) -> str:
    return tokenizer.decode(load_tokens(path)).replace(EOT, "|")


@pytest.mark.parametrize(
    ("documents", "options"),
    [
        (["hello", "", "there\n"], {}),
        (("hello", "", "there\n"), {}),
        ([b"hello", "", b"there\n"], {}),
        ([{"text": "hello"}, "", {"text": "there\n", "n": 1}], {}),
        (Rows({"text": "hello"}, {"text": ""}, {"text": "there\n"}), {}),
        (Rows({"a": {"b": "hello"}}, {"a": {"b": ""}}, {"a": {"b": "there\n"}}), {"text_field": "a.b"}),
    ],
)
def test_documents_are_encoded_with_an_end_token_after_each(
    tokenizer: Tokenizer, documents: Any, options: dict[str, Any], out: Path
) -> None:
    done = tokenizer.encode_documents(documents, out, index=True, **options)
    assert text_of(tokenizer, out) == "hello||there\n|"
    assert (done.documents, done.files, done.bytes) == (3, 0, 11)
    assert bpeflow.load_document_offsets(out)[-1] == done.tokens
    facts = json.loads(sidecar_path(out).read_text(encoding="utf-8"))
    assert facts["input"] == [{"path": "<documents>", "bytes": None}]


@given(
    contents=st.lists(contents_utf8, max_size=8),
    end_token=st.sampled_from([None, "", PAD]),
    as_text=st.booleans(),
    pattern=st.sampled_from(["gpt2", CUSTOM]),
    unmatched=st.sampled_from(["isolate", "drop"]),
    at_once=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_records_have_the_ids_of_each_text(
    contents: list[bytes],
    end_token: str | None,
    as_text: bool,
    pattern: str,
    unmatched: Any,
    at_once: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tokenizer, out = make_tokenizer(pattern, unmatched=unmatched), tmp_path_factory.mktemp("records") / "train.bin"
    texts = [content.decode() for content in contents]
    end = [] if end_token == "" else [tokenizer.special_tokens[end_token or EOT]]
    options: dict[str, Any] = {"end_token": end_token, "special_tokens_as_text": as_text, "index": True}
    with pytest.MonkeyPatch.context() as patch:
        if at_once:  # as short ones would take long one by one
            patch.setattr(ChunkEncoder, "_encode_documents", None)
        else:  # as long ones would take memory
            patch.setattr(corpus_encoder, "_LARGEST_BATCH", -1)
            patch.setattr(ChunkEncoder, "_encode_records", None)
        done = tokenizer.encode_documents(texts, out, chunk_size=30, **options)
    allowed: Any = () if as_text else "all"
    assert read_documents(out) == [tokenizer.encode(text, allowed_special=allowed) + end for text in texts]
    assert (done.documents, done.bytes) == (len(texts), sum(map(len, contents)))


def test_an_iterator_is_read_once(tokenizer: Tokenizer, out: Path) -> None:
    documents = iter(["hello", "", "there\n"])
    tokenizer.encode_documents(documents, out)
    assert text_of(tokenizer, out) == "hello||there\n|"
    assert list(documents) == []


def test_an_encoder_that_holds_the_lock_also_takes_documents(tokenizer: Tokenizer, out: Path) -> None:
    slow = make_tokenizer(encoder="python")
    encode_documents(slow, ["hello"] * 100, out, num_threads=2, chunk_size=50)
    assert text_of(slow, out) == "hello|" * 100


def test_a_single_text_is_not_a_list_of_documents(tokenizer: Tokenizer, out: Path) -> None:
    for documents in ("hello", b"hello", {"text": "hello"}):
        with pytest.raises(InputTypeError, match="documents is a single"):
            tokenizer.encode_documents(documents, out)  # type: ignore[arg-type]


def test_tables_and_several_datasets_are_not_documents(tokenizer: Tokenizer, out: Path) -> None:
    """Iterating over them gives names of columns and splits."""

    class Table(Rows):
        columns = ("text",)

    for corpus, message in (
        (Table({"text": "a"}), "a Table is a table: pass its column"),
        ({"train": Rows({"text": "a"})}, "a dict holds several corpora or columns: pass one of them"),
        ({"text": ["a", "b"]}, r"a dict holds several corpora or columns: .* iter\(table\['text'\]\)"),
    ):
        for use in (
            bpeflow.count,
            lambda it: encode_file(tokenizer, it, out),
            lambda it: tokenizer.encode_documents(it, out),
        ):
            with pytest.raises(InputTypeError, match=message):
                use(corpus)


def test_special_tokens_in_documents_may_be_text(tokenizer: Tokenizer, out: Path) -> None:
    tokenizer.encode_documents([f"a{EOT}b"], out)
    assert load_tokens(out).tolist() == tokenizer.encode(f"a{EOT}b{EOT}")
    tokenizer.encode_documents([f"a{EOT}b"], out, special_tokens_as_text=True, overwrite=True)
    assert load_tokens(out).tolist() == [*tokenizer.encode_ordinary(f"a{EOT}b"), *tokenizer.encode(EOT)]


def test_sources_have_their_own_settings(tokenizer: Tokenizer, out: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.data").write_text('{"body": "one"}\n{"body": "two"}\n')
    (tmp_path / "c.jsonl").write_text('{"text": "three"}')
    sources = [
        {"name": "lines", "paths": str(tmp_path / "b.data"), "format": "jsonl", "text_field": "body"},
        {"name": "rest", "paths": str(tmp_path), "exclude": ["*.data", "*.txt"]},
    ]
    encode_file(tokenizer, [tmp_path / "a.txt", *sources], out)
    assert text_of(tokenizer, out) == "plain|one|two|three|"


def test_sources_of_a_training_are_encoded_whole_and_once(
    tokenizer: Tokenizer, out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, [b"a b c d".replace(b" ", EOT.encode())])
    source = {"name": "letters", "paths": str(tmp_path / "*.txt"), "max_bytes": 2, "weight": 3}
    with caplog.at_level("INFO"):
        encode_file(tokenizer, [source], out)
    assert text_of(tokenizer, out) == "a|b|c|d"
    described = json.loads(sidecar_path(out).read_text(encoding="utf-8"))["settings"]["sources"]
    assert {source["max_bytes"] for source in described} == {None}
    assert caplog.messages == [
        "weights are ignored, as each document counts once: letters (3)",
        "max_bytes is ignored: whole sources are encoded (sampled=True for the samples): letters (2 bytes)",
    ]


def test_a_sample_is_the_one_that_training_draws(
    tokenizer: Tokenizer, out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, [b"a b c d e f g h".replace(b" ", EOT.encode()), b"i j k l m".replace(b" ", EOT.encode())])
    source = {"name": "letters", "paths": str(tmp_path / "*.txt"), "max_bytes": 5, "seed": 3}
    with caplog.at_level("INFO"):
        encode_file(tokenizer, [source], out, sampled=True)
    assert caplog.messages == ["only random samples of these sources are read: letters (5 bytes)"]
    counted = bpeflow.count([source], special_tokens=[EOT])  # type: ignore[list-item]
    assert sorted(text_of(tokenizer, out)) == sorted("|".join(token.decode() for token in counted) + "|")
    assert len(counted) == 5
    facts = json.loads(sidecar_path(out).read_text(encoding="utf-8"))
    [described] = facts["settings"]["sources"]
    assert (described["name"], described["max_bytes"], described["seed"]) == ("letters", 5, 3)


def test_text_that_cannot_be_divided_has_a_limit(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.corpus.text_rules.LONGEST_TEXT", 10_000)
    out.parent.mkdir()
    text = b"a" * 600_000
    (plain := tmp_path / "long.txt").write_bytes(text)
    (packed := tmp_path / "long.txt.gz").write_bytes(gzip.compress(text))
    for path in (plain, packed):
        with pytest.raises(CorpusError, match="cannot be divided"):
            encode_file(make_tokenizer("gpt2"), path, out, chunk_size=1000)


def test_files_can_be_left_out(tokenizer: Tokenizer, out: Path, tmp_path: Path) -> None:
    write_files(tmp_path, [b"a", b"b", b"c"])
    encode_file(tokenizer, tmp_path / "*.txt", out, exclude="*1.txt")
    assert text_of(tokenizer, out) == "a|c"


def test_records_without_text_are_refused_or_left_out_and_counted(
    tokenizer: Tokenizer, out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a"}\nno JSON\n{"body": "b"}\n{"text": 1}\n{"text": null}\n{"text": "c"}'
    )
    with pytest.raises(BadRecordError, match=r"a.jsonl: line 2: not JSON .* bad_records='skip'"):
        encode_file(tokenizer, tmp_path / "a.jsonl", out)
    done = encode_file(tokenizer, tmp_path / "a.jsonl", out, bad_records="skip", chunk_size=1, num_threads=2)
    assert (text_of(tokenizer, out), done.documents, done.bad_records, done.skipped_documents) == ("a|c|", 2, 4, 0)
    assert json.loads(sidecar_path(out).read_text(encoding="utf-8"))["bad_records"] == 4
    [record] = caplog.records
    assert "4 bad records left out, such as: " in record.message
    assert "a.jsonl: line 2: not JSON at character 0" in record.message


def test_documents_without_text_are_refused_or_left_out(tokenizer: Tokenizer, out: Path) -> None:
    documents = ["a", None, {"text": None}, {"body": "b"}]
    with pytest.raises(BadRecordError, match="document 1: "):
        tokenizer.encode_documents(documents, out)  # type: ignore[arg-type]
    done = tokenizer.encode_documents(documents, out, bad_records="skip")  # type: ignore[arg-type]
    assert (text_of(tokenizer, out), done.bad_records) == ("a|", 3)
    with pytest.raises(InputTypeError, match="document 0 is int"):
        tokenizer.encode_documents([1], out, bad_records="skip", overwrite=True)  # type: ignore[list-item]
    with pytest.raises(InputTypeError, match=r"document 0 is PosixPath.*; pass paths as a list"):
        encode_file(tokenizer, iter([out]), out, overwrite=True)  # type: ignore[arg-type]


def test_text_in_place_of_a_path_is_refused(tokenizer: Tokenizer, out: Path) -> None:
    with pytest.raises(CorpusError, match=r"the input 'Once.{,100}' looks like text, not like a path: .*iter\("):
        encode_file(tokenizer, "Once upon a time\n" * 100_000, out)


def test_the_command_line_leaves_out_files_and_bad_records(
    tokenizer: Tokenizer, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\nno JSON\n')
    (tmp_path / "b.jsonl").write_text('{"text": "b"}\n')
    flags = ["--input", str(tmp_path / "*.jsonl"), "--exclude", "*b.jsonl", "--bad_records", "skip"]
    assert main(["encode", "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(out), *flags]) == 0
    assert "in 1 document, 1 bad record left out" in capsys.readouterr().out
    assert text_of(tokenizer, out) == "a|"
