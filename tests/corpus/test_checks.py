"""Warnings about the start of a corpus: likely mistakes, said once and before the work."""

from __future__ import annotations

import bz2
import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus_forms import write_parquet

import bpeflow
from bpeflow.corpus import checks
from bpeflow.dataset.encode import encode_file
from bpeflow.errors import CorpusError

LINE = b"one line of text\n"


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a text of 1,000 bytes be a long one."""
    monkeypatch.setattr(checks, "LOOK_BYTES", 1000)
    monkeypatch.setattr(checks, "_USUAL_BYTES", 500)


def warnings_about(caplog: pytest.LogCaptureFixture, *corpus: Path | str, **options: Any) -> list[str]:
    caplog.clear()
    bpeflow.count(corpus, **{"special_tokens": ["<|endoftext|>"], **options})
    return caplog.messages


# ---- separators ----


@pytest.mark.parametrize("name", ["corpus", "corpus.bz2", "-"])
def test_a_long_text_without_a_separator_is_reported_first_and_last(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = LINE * 100
    (tmp_path / "corpus").write_bytes(text)
    (tmp_path / "corpus.bz2").write_bytes(bz2.compress(text))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    first, last = warnings_about(caplog, name if name == "-" else tmp_path / name)
    assert f"{'standard input' if name == '-' else name}: no '<|endoftext|>' in its first " in first
    assert first.endswith("if it has several documents, set separator to the text between them")
    assert last == "'<|endoftext|>' divided no file: each is one document"


def test_a_separator_that_is_given_and_does_not_occur_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "short").write_text("one<s>two", encoding="utf-8")
    [warning] = warnings_about(caplog, tmp_path / "short", separator="<x>")
    assert warning == "'<x>' divided no file: each is one document"
    assert not warnings_about(caplog, tmp_path / "short", separator="<s>")
    assert not warnings_about(caplog, tmp_path / "short", separator="")


def test_a_separator_that_occurs_late_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "corpus").write_bytes(LINE * 300 + b"<|endoftext|>" + LINE)
    [warning] = warnings_about(caplog, tmp_path / "corpus")
    assert "no '<|endoftext|>' in its first" in warning


def test_the_largest_file_of_each_source_is_looked_at(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(LINE * 100 * (number + 1))
    (tmp_path / "divided").write_bytes((LINE + b"<|endoftext|>") * 50)
    sources = [{"name": name, "paths": str(tmp_path / name)} for name in ("[012]", "divided")]
    warnings = warnings_about(caplog, input=(), sources=sources)
    assert len(warnings) == 1
    assert f"{tmp_path / '2'}: no '<|endoftext|>'" in warnings[0]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (LINE * 20, {}),  # short: a document in a file
        (b"a<|endoftext|>" + LINE * 100, {}),
        ((LINE * 55)[:985] + b"<|endoftext|>" + LINE * 10, {}),
        (LINE * 100, {"separator": "\n"}),
        (LINE * 100, {"special_tokens": []}),
        (b'{"text": "one line"}\n' * 50, {"input_format": "jsonl"}),
    ],
)
def test_nothing_is_said_about_usual_texts(
    tmp_path: Path, content: bytes, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(content)
    assert warnings_about(caplog, tmp_path, **options) == []


# ---- end-of-text strings ----


@pytest.mark.parametrize("form", ["txt", "jsonl", "parquet", "stdin", "documents"])
def test_an_end_of_text_string_that_is_no_special_token_is_reported(
    tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>"
    path = tmp_path / f"corpus.{form}"
    if form == "parquet":
        write_parquet(path, [document])
    elif form == "jsonl":
        path.write_text(json.dumps({"text": document}), encoding="utf-8")
    else:
        path.write_text(document + "<|endoftext|>", encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    if form == "documents":
        bpeflow.count(iter([document]), special_tokens=["<|endoftext|>"])
        [warning] = caplog.messages
    else:
        [warning] = warnings_about(caplog, "-" if form == "stdin" else path)
    assert "'<|im_start|>' 2 times, '<|im_end|>' 2 times in its first " in warning
    known_first = form in ("txt", "stdin")  # where it separates documents
    found, known = ["<|im_end|>", "<|im_start|>"], ["<|endoftext|>"]
    tokens = known + found if known_first else found + known
    assert warning.endswith(f"to make them special tokens, give special_tokens={tokens}")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (b"a<|im_end|>b", {"special_tokens": ["<|im_end|>"]}),
        (b"a<|im_end|>b", {"separator": "<|im_end|>"}),
        (b"<p>H<s>T</s>ML</p> a <| b |> c <|x|> <|im_|> <s>\n", {}),
        (LINE * 40 + b"<|im_end|>", {}),  # beyond the first bytes
    ],
)
def test_nothing_is_said_about_special_tokens_and_html(
    tmp_path: Path, text: bytes, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "corpus").write_bytes(text)
    assert warnings_about(caplog, tmp_path, **options) == []


@pytest.mark.parametrize("token", ["<eos>", "<bos>", "<|eot|>"])
def test_usual_end_of_text_strings_are_recognised(token: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(f"hello{token}" * 9, encoding="utf-8")
    bpeflow.count(path, special_tokens=())
    assert f"'{token}' 9 times" in caplog.text


def test_the_end_of_text_of_llama_2_is_recognised_at_the_ends_of_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "corpus").write_bytes(b"one</s>\ntwo</s>\n")
    [warning] = warnings_about(caplog, tmp_path)
    assert "'</s>' 2 times" in warning


# ---- everything else ----


def test_a_pattern_that_matches_nothing_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "corpus").write_bytes(LINE * 10)
    caplog.clear()
    with pytest.raises(CorpusError, match=r"the pattern .* matches nothing in the corpus"):
        bpeflow.count(tmp_path / "corpus", pattern="[0-9]+|z?", unmatched="drop")
    assert f"{tmp_path}/corpus: the pattern matches nothing in its first 170 bytes" in caplog.messages


def test_tables_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text in {"a.txt": b"some text", "c.TSV": b"a\tb", "d.csv.bz2": b"a,b"}.items():
        (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    for name in ("c.TSV", "d.csv.bz2"):
        [message] = warnings_about(caplog, tmp_path / name)
        assert message.startswith(f"{tmp_path / name}: read as plain text, marks and names of fields included")
        assert "looks like a table: convert its texts to JSON Lines or Parquet" in message
        assert warnings_about(caplog, tmp_path / name, input_format="text") == []
    assert warnings_about(caplog, tmp_path / "a.txt", tmp_path / "c.TSV") == []  # not the largest, as in source code


def test_a_field_of_records_is_reported_if_there_are_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text, lines = tmp_path / "a.txt", tmp_path / "a.jsonl"
    text.write_text("text", encoding="utf-8")
    lines.write_text('{"body": "text"}', encoding="utf-8")
    message = "text_field: has no effect, because no input is JSON Lines or Parquet"
    assert warnings_about(caplog, text, text_field="body") == [message]
    assert warnings_about(caplog, text, lines, text_field="body") == []
    caplog.clear()
    bpeflow.count(iter([{"body": "text"}]), text_field="body", special_tokens=["<|endoftext|>"])
    assert not caplog.messages


def test_empty_files_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b, empty, other = (tmp_path / name for name in ("a", "b", "empty", "other"))
    for path, text in ((a, b"a text"), (b, b"another"), (empty, b""), (other, b"")):
        path.write_bytes(text)
    assert warnings_about(caplog, a, b) == []
    assert warnings_about(caplog, a, b, empty) == []  # one of several, as in source code
    assert warnings_about(caplog, a, a, empty, a) == [f"{empty} is empty"]  # one of two: a file is read once
    assert warnings_about(caplog, tmp_path, b) == [f"2 files, such as {empty}, are empty"]
    with pytest.raises(CorpusError, match=f"nothing to count: the corpus is empty \\({empty}\\)"):
        bpeflow.count(empty)


def test_files_in_several_sources_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"a text")
    (tmp_path / "link").symlink_to(tmp_path / "c")
    sources = [{"name": "100%", "paths": [str(tmp_path / "a"), str(tmp_path / "b")]}]
    sources += [{"name": "all", "paths": [str(tmp_path / name) for name in ("a", "b", "link")]}]
    caplog.clear()
    counts = bpeflow.count([str(tmp_path / "c"), *sources])
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"3 files, such as {tmp_path}/c, are in several sources, and read for each of them",
    ]
    assert counts.total == 2 * 6


def test_a_run_in_several_processes_says_it_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").write_bytes(LINE * 100)
    (tmp_path / "corpus.bz2").write_bytes(bz2.compress(LINE * 100))
    with monkeypatch.context() as patch:
        patch.setattr(logging.getLogger(), "handlers", [])  # so that all processes write to standard error
        bpeflow.count(tmp_path, special_tokens=["<s>"], executor="processes", num_counter=2)
    assert capfd.readouterr().err.count("no '<s>' in its first") == 1


def test_encoding_looks_at_the_corpus_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], ["<|endoftext|>"])
    corpus, out = tmp_path / "corpus", tmp_path / "ids.bin"

    def warnings(text: bytes, **options: Any) -> list[str]:
        caplog.clear()
        corpus.write_bytes(text)
        encode_file(tokenizer, corpus, out, overwrite=True, **options)
        return caplog.messages

    missing, strings = warnings(LINE * 100 + b"<|eot_id|>", num_threads=1), warnings(b"a<|eot_id|>")
    assert "no '<|endoftext|>' in its first" in missing[0]
    assert strings[0].endswith(
        "'<|eot_id|>' 1 time in its first 11 bytes: no special tokens of this tokenizer, so encoded as ordinary text"
    )
    assert warnings(b"a<|eot_id|>", special_tokens_as_text=True) == []
    assert warnings(b"") == [f"{corpus} is empty", f"{out}: no ids, because the corpus has no text"]
    with pytest.raises(CorpusError, match="corpus is UTF-16"):
        warnings("a".encode("utf-16"))
