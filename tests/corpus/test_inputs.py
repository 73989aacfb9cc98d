"""The same documents have the same counts in every input format, however they are named."""

from __future__ import annotations

import gzip
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from corpus_forms import COMPRESSORS, FORMS, SEPARATOR, pieces, text_bytes, write, write_parquet
from counted import assert_same, count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bpeflow
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.count import CorpusCounts
from bpeflow.dataset.encode import encode_file
from bpeflow.errors import CorpusError
from bpeflow.pretokenize.native import INSTRUCTIONS_VARIABLE

IN_THREADS: list[dict[str, object]] = [
    {},
    {"chunk_size": 1000, "num_counter": 3, "num_merger": 2},
    {"chunk_size": 777},
]
#: All formats are read in processes by the test after the next.
IN_PROCESSES = {"executor": "processes", "num_counter": 2, "chunk_size": 5000}


@pytest.mark.parametrize(
    ("form", "options"),
    [*product(FORMS, IN_THREADS), *((form, IN_PROCESSES) for form in ("txt", "jsonl", "parquet", "jsonl.gz"))],
    ids=str,
)
def test_every_format_has_the_counts_of_plain_text(
    tmp_path: Path, documents: list[str], expected: CorpusCounts, form: str, options: dict[str, object]
) -> None:
    counted = count(str(write(tmp_path / f"corpus.{form}", documents)), **options)
    assert_same(counted, expected)
    if "txt" in form:
        assert counted.documents == expected.documents


@pytest.mark.parametrize("form", FORMS)
def test_every_format_has_them_with_the_regex_module(
    tmp_path: Path, documents: list[str], expected: CorpusCounts, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSTRUCTIONS_VARIABLE, "regex")
    assert_same(count(str(write(tmp_path / f"corpus.{form}", documents)), chunk_size=777), expected)


@pytest.mark.parametrize("form", FORMS)
def test_every_format_has_them_with_other_settings(tmp_path: Path, documents: list[str], form: str) -> None:
    other = {"pattern": "cl100k", "invalid_utf8": "skip"}
    counted = count(str(write(tmp_path / f"corpus.{form}", documents)), **other, chunk_size=3000)
    assert_same(counted, count(str(write(tmp_path / "expected.txt", documents)), **other))


def test_many_files_of_many_formats_are_read_in_parallel(
    tmp_path: Path, documents: list[str], expected: CorpusCounts
) -> None:
    for form, part in zip(FORMS, pieces(documents, len(FORMS)), strict=True):
        write(tmp_path / f"part.{form}", part)
    counted = count(str(tmp_path), executor="processes", num_counter=2, num_merger=2, chunk_size=2000)
    assert_same(counted, expected)
    assert counted.corpus.files == len(FORMS)
    assert [*counted.counting.stages] == ["chunk reader", "stream reader", "counter", "merger", "reducer"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compression_is_detected_by_content_and_may_have_many_members(
    tmp_path: Path, documents: list[str], expected: CorpusCounts, suffix: str
) -> None:
    compress = COMPRESSORS[suffix]
    members = [compress(text_bytes(part)) for part in pieces(documents, 7)]
    (tmp_path / "corpus").write_bytes(compress(b"") + b"".join(members))
    counted = count(str(tmp_path / "corpus"), chunk_size=4000)
    assert_same(counted, expected)
    assert counted.documents == expected.documents


@pytest.mark.slow
@given(
    documents=st.lists(st.text("ab <|>endoftx'\n字é1", max_size=30), max_size=12),
    form=st.sampled_from(["jsonl", "parquet", "iterable", "txt.gz"]),
    chunk_size=st.integers(1, 60),
    specials=st.sampled_from([[SEPARATOR], ["\n\n"], ["a", "<|"], []]),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_records_are_counted_one_by_one_whatever_the_delimiters_are(
    tmp_path: Path, documents: list[str], form: str, chunk_size: int, specials: list[str]
) -> None:
    """By definition, the counts are those of each document counted as the only one of a file, added up."""
    documents.append(".")  # so that there is something to count
    single: dict[bytes, int] = {}
    for document in documents:
        (tmp_path / "one.txt").write_text(document, encoding="utf-8")
        with suppress(CorpusError):  # nothing to count
            for token, number in dict(bpeflow.count(tmp_path / "one.txt", special_tokens=specials)).items():
                single[token] = single.get(token, 0) + number
    corpus: object = iter(documents)
    if form == "txt.gz":
        if specials != [SEPARATOR] or any(SEPARATOR in document for document in documents):
            return
        (tmp_path / "corpus.gz").write_bytes(gzip.compress(text_bytes(documents)))
        corpus = tmp_path / "corpus.gz"
    elif form != "iterable":
        corpus = write(tmp_path / f"corpus.{form}", documents)
    counted = bpeflow.count(corpus, special_tokens=specials, chunk_size=chunk_size)  # type: ignore[arg-type]
    assert dict(counted) == single


# ---- ways to name inputs ----


def test_lists_of_inputs_are_expanded(tmp_path: Path, documents: list[str], expected: CorpusCounts) -> None:
    parts = list(pieces(documents, 3))
    write(tmp_path / "a.txt", parts[0])
    write(tmp_path / "b.jsonl.gz", parts[1])
    write(tmp_path / "c\nc.txt", parts[2])
    (tmp_path / "lines").write_text(f"{tmp_path}/a.txt\r\n\n{tmp_path}/b.*\n")
    (tmp_path / "zeros").write_bytes(f"{tmp_path}/c\nc.txt\0".encode())
    assert_same(count([f"@{tmp_path}/lines", f"@{tmp_path}/zeros"]), expected)


@pytest.mark.parametrize(("content", "message"), [("", "is empty"), ("no/such", "no/such does not exist")])
def test_a_list_that_names_nothing_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "list").write_text(content)
    with pytest.raises(CorpusError, match=message):
        count(f"@{tmp_path}/list")
    with pytest.raises(CorpusError, match="cannot read the list of inputs"):
        count(f"@{tmp_path}/missing")


# ---- encoding ----


@pytest.fixture(scope="module")
def tokenizer(documents: list[str]) -> bpeflow.Tokenizer:
    return bpeflow.Tokenizer.train(iter(documents), 400, special_tokens=[SEPARATOR])


@pytest.fixture(scope="module")
def encoded_text(tokenizer: bpeflow.Tokenizer, documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoded")
    encode_file(tokenizer, write(folder / "a.txt", documents), folder / "text.bin", index=True)
    return folder / "text.bin"


@pytest.mark.parametrize("form", FORMS)
def test_every_format_is_encoded_alike(
    tmp_path: Path, documents: list[str], tokenizer: bpeflow.Tokenizer, encoded_text: Path, form: str
) -> None:
    path, other = write(tmp_path / f"b.{form}", documents), tmp_path / "other.bin"
    for threads in (1, 3):
        encoded = encode_file(tokenizer, path, other, index=True, num_threads=threads, chunk_size=3000, overwrite=True)
        assert other.read_bytes() == encoded_text.read_bytes()
        assert other.with_suffix(".bin.idx").read_bytes() == encoded_text.with_suffix(".bin.idx").read_bytes()
        assert encoded.documents == len(documents)


def test_statistics_of_records_are_those_of_their_text(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ["ab", "", "cde"])
    assert count(str(tmp_path)).documents == DocumentStatistics(3, 0, 5)
