"""Records: lines of JSON, rows of Parquet, and documents that a caller passes."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_forms import COMPRESSORS, SEPARATOR

import bpeflow
from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.cli.main import main
from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.count import CorpusCounter, CorpusCounts
from bpeflow.errors import BadRecordError, CorpusError, InputTypeError, InvalidUtf8Error, OutOfMemoryError


def lines(path: Path, *values: object) -> Path:
    file = path / "corpus.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def test_fields_and_columns_may_be_nested(tmp_path: Path) -> None:
    file = lines(tmp_path, {"a": {"b": "one"}}, {"a": {"b": "two", "c": 1}})
    assert dict(bpeflow.count(file, text_field="a.b")) == {b"one": 1, b"two": 1}
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"a": [{"b": "one"}, {"b": "two"}], "x.y": ["three", "four"], "n": [1, 2]}),
        tmp_path / "p.parquet",
    )
    assert dict(bpeflow.count(tmp_path / "p.parquet", text_field="a.b")) == {b"one": 1, b"two": 1}
    assert dict(bpeflow.count(tmp_path / "p.parquet", text_field="x.y")) == {b"three": 1, b"four": 1}


def test_lines_may_be_empty_and_have_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n\n   \n{"text": "t\\nw\\u00f6"}')
    counts = bpeflow.count(tmp_path / "a.ndjson")
    assert dict(counts) == {b"one": 1, b"t": 1, b"\n": 1, "wö".encode(): 1}


@pytest.mark.parametrize("chunk_size", [1, 20, 1 << 20])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', r"line 3: not JSON at character 12"),
        ('{"text": "a', r"line 3: not JSON at character 9: Unterminated string; each"),
        ('{"body": "a"}', r"line 3: no field 'text' \(found: 'body'\); .* text_field"),
        ("[1]", r"line 3: no field 'text' \(its parent is \[1\]\)"),
        ('{"text": 5}', r"line 3: text is 5, not a string"),
        ('{"text": null}', r"line 3: text is None, not a string; use bad_records='skip'"),
        ("[" * 100_000, r"line 3: cannot parse the JSON"),
        ('{"text": ' + "1" * 5000 + "}", r"line 3: (cannot parse the JSON|text is 1+)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_error_for_a_bad_line_gives_its_number(tmp_path: Path, line: str, message: str, chunk_size: int) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(COMPRESSORS["gz"](f'{{"text": "a"}}\n\n{line}\n{{"text": "b"}}\n'.encode()))
    with pytest.raises(CorpusError, match=rf"corpus\.jsonl\.gz \(decompressed\): {message}"):
        bpeflow.count(path, chunk_size=chunk_size)


@pytest.mark.parametrize(
    ("policy", "counts", "statistics"),
    [
        ("replace", {b"a": 3, "\ufffd".encode(): 2}, DocumentStatistics(3, 0, 9)),
        ("skip", {b"a": 1}, DocumentStatistics(3, 2, 1)),
    ],
)
def test_lines_that_are_not_utf8_are_replaced_or_skipped(
    tmp_path: Path, policy: InvalidUtf8Policy, counts: dict[bytes, int], statistics: DocumentStatistics
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "a\xff"}\n{"text": "a\\ud800"}\n')
    counted = CorpusCounter(make_settings(CountSettings, {"input": str(path), "invalid_utf8": policy})).count()
    assert dict(counted.counts) == counts
    assert counted.documents == statistics
    with pytest.raises(InvalidUtf8Error, match="line 2: not UTF-8 at byte 11"):
        bpeflow.count(path)
    path.write_bytes(b'{"text": "a\\ud800"}')
    with pytest.raises(InvalidUtf8Error, match="line 1: not UTF-8 at character 1 of the document"):
        bpeflow.count(path)


@pytest.mark.parametrize("options", [{}, {"chunk_size": 12}, {"executor": "processes", "num_counter": 2}])
def test_bad_records_are_left_out_counted_and_reported(
    tmp_path: Path, options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    bad = ["{", "[1]", "{}", '{"text": 5}', '{"text": null}', "[" * 100_000]
    (tmp_path / "a.jsonl").write_text("\n".join(['{"text": "a"}', *bad, '{"text": "b"}']))
    settings = {"input": str(tmp_path / "a.jsonl"), "bad_records": "skip", **options}
    counted = CorpusCounter(make_settings(CountSettings, settings)).count()
    assert dict(counted.counts) == {b"a": 1, b"b": 1}
    assert (counted.documents.documents, counted.documents.bad_records) == (2, len(bad))
    assert [record.message for record in caplog.records if "6 bad records left out, such as: " in record.message]
    assert f"{tmp_path}/a.jsonl: line " in caplog.text


@pytest.mark.parametrize("mistyped", [0, 1])
def test_a_source_without_any_text_is_named(tmp_path: Path, mistyped: int, caplog: pytest.LogCaptureFixture) -> None:
    file = lines(tmp_path, {"text": "a"}, {"text": "b"})
    sources = [{"name": f"s{i}", "path": str(file), "text_field": "txet" if i == mistyped else "text"} for i in (0, 1)]
    counted = CorpusCounter(make_settings(CountSettings, {"input": sources, "bad_records": "skip"})).count()
    assert dict(counted.counts) == {b"a": 1, b"b": 1}
    named = [record.message for record in caplog.records if "no record has text" in record.message]
    assert named == [f"source s{mistyped}: no record has text; is its text_field right?"]


def test_samples_leave_out_bad_records(tmp_path: Path) -> None:
    file = lines(tmp_path, {"text": "a"}, {"body": "b"}, {"text": "c"})
    source = {"name": "it", "path": str(file), "max_bytes": 10}
    counted = CorpusCounter(make_settings(CountSettings, {"input": source, "bad_records": "skip"})).count()
    assert dict(counted.counts) == {b"a": 1, b"c": 1}
    assert counted.documents.bad_records == 1
    with pytest.raises(BadRecordError, match="line 2: no field 'text'"):
        bpeflow.count([source])  # type: ignore[list-item]


def test_the_report_of_a_run_and_its_summary_have_the_bad_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "low \\ud800"}\n{}\n')
    flags = ["--input", str(tmp_path / "a.jsonl"), "--vocab_size", "257", "--out_dir", str(tmp_path / "run")]
    assert main([*flags, "--bad_records", "skip", "--invalid_utf8", "skip"]) == 0
    corpus = json.loads((tmp_path / "run" / "run.json").read_text())["corpus"]
    assert (corpus["documents"], corpus["skipped_documents"], corpus["bad_records"]) == (2, 1, 1)
    shown = capsys.readouterr()
    assert " and 1 document: " in shown.out  # that was counted
    assert "1 document skipped: not UTF-8" in shown.out
    assert "1 bad record left out" in shown.out
    assert main(["encode", "--tokenizer", str(tmp_path / "run"), *flags[:2], "--out", str(tmp_path / "a.bin"),
                 "--bad_records", "skip", "--invalid_utf8", "skip"]) == 0  # fmt: skip
    shown = capsys.readouterr()
    assert " in 1 document, 1 skipped, 1 bad record left out" in shown.out
    assert "1 of 2 documents was skipped: not UTF-8" in shown.err


def test_running_out_of_memory_is_not_reported_as_damaged_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    def no_memory(*_: object, **__: object) -> None:
        raise pyarrow.ArrowMemoryError("malloc of size 64 failed")

    parquet.write_table(pyarrow.table({"text": ["one"]}), tmp_path / "corpus.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", no_memory)
    with pytest.raises(OutOfMemoryError, match="malloc of size 64 failed"):
        bpeflow.count(tmp_path / "corpus.parquet")


def test_the_error_for_bad_parquet_names_the_file_and_says_why(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
    from pyarrow import parquet

    path = tmp_path / "corpus.parquet"
    table = pyarrow.table({"text": ["a", None, "b"], "n": [1, 2, 3], "raw": [b"a", b"\xff", b"c"]})
    parquet.write_table(table, path, row_group_size=1)
    for options, message in (
        ({"text_field": "body"}, r"no column 'body' \(found: 'text', 'n', 'raw'\)"),
        ({"text_field": "text.a"}, r"no column 'text\.a'"),
        ({"text_field": "n"}, r"the column 'n' holds int64, not strings"),
        ({}, r"row 2: the text is null"),
        ({"text_field": "raw"}, r"row 2: not UTF-8 at byte 0"),
    ):
        with pytest.raises(CorpusError, match=rf"corpus\.parquet: {message}"):
            bpeflow.count(path, **options)
    with pytest.raises(CorpusError, match=r"corpus\.parquet: row 2: the text is null"):  # in a process
        bpeflow.count(path, executor="processes", num_counter=1)
    assert dict(bpeflow.count(path, bad_records="skip")) == {b"a": 1, b"b": 1}
    page = bytearray(path.read_bytes())
    page[40:60] = bytes(20)
    for damaged in (b"PAR1", path.read_bytes()[:-20], b"no parquet at all", page):
        (tmp_path / "bad.parquet").write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"bad\.parquet: not Parquet, or damaged"):
            bpeflow.count(tmp_path / "bad.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(COMPRESSORS["gz"](path.read_bytes()))
    with pytest.raises(CorpusError, match=r"a\.parquet\.gz: Parquet inside gzip"):
        bpeflow.count(tmp_path / "a.parquet.gz")


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
        assert "".join(traceback.format_exception(caught.value)).count("\n") < 25


@pytest.mark.parametrize("use", [bpeflow.count, lambda corpus: bpeflow.Tokenizer.train(corpus, 300)])
def test_lists_of_lists_are_refused_with_the_way_to_flatten_them(use: Callable[[Any], object]) -> None:
    for corpus in ([["a b", "c d"], ["e"]], iter([["a b", "c d"], ["e"]])):
        with pytest.raises(InputTypeError, match=r"\(text for batch in batches for text in batch\), or .*_iterator"):
            use(corpus)


def test_a_name_with_spaces_that_does_not_exist_may_be_text() -> None:
    with pytest.raises(CorpusError, match=r"the input low lower does not exist; .*; if it is text, .* iter\("):
        bpeflow.count(["low lower", "low"])


def test_items_that_are_not_documents_are_refused() -> None:
    with pytest.raises(InputTypeError, match="document 1 is int"):
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


@pytest.mark.parametrize("form", ["iterable", "parquet"])
def test_an_endless_word_in_a_document_is_refused_and_other_long_documents_are_not(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bpeflow.corpus.text_rules.LONGEST_TEXT", 1000)
    tokenizer = bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])

    def corpus(text: str) -> Any:
        if form == "iterable":
            return iter(["first", text])
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": ["first", text]}), tmp_path / "p.parquet")
        return tmp_path / "p.parquet"

    long = "some words " * 1000
    assert bpeflow.count(corpus(long)).total == 2002
    assert tokenizer.encode_file(corpus(long), tmp_path / "a.bin").tokens == 5 + len(long)
    endless = long + "a" * 2000
    message = r"document 2 has more than 1.0 kB from byte 1\d,\d+ on that the pattern cannot divide"
    with pytest.raises(CorpusError, match=message):
        bpeflow.count(corpus(endless))
    with pytest.raises(CorpusError, match=message):
        tokenizer.encode_file(corpus(endless), tmp_path / "b.bin")
