"""The metrics of an evaluation equal their definitions, whatever the input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from corpus_forms import FORMS, write
from hypothesis import given, settings
from hypothesis import strategies as st
from token_corpora import CUSTOM, EOT, MERGES, PAD, contents_utf8, make_tokenizer, write_files

from bpeflow import evaluate
from bpeflow.corpus.text_rules import Sample
from bpeflow.counting.budget import MemoryBudget
from bpeflow.dataset import evaluate as evaluation
from bpeflow.dataset.evaluation_report import CorpusText, Evaluation
from bpeflow.errors import ConfigError, CorpusError, InvalidUtf8Error, TokenizerNotFoundError
from bpeflow.look.vocabulary import longest_tokens
from bpeflow.progress import Observer
from bpeflow.tokenizer.tokenizer import Tokenizer

DOCUMENTS = ["hello there", "aaaa é中 hello", "", "the  end\n", "123!"]
ALPHABET = dict(enumerate(bytes([byte]) for byte in range(256)))

#: Its merge is not applied if the text is cut where the named patterns allow it.
UNCUT = Tokenizer({**ALPHABET, 256: b"o "}, [(b"o", b" ")], [EOT], "(?s).+")

TOKENIZERS = {
    "gpt2": make_tokenizer(),
    "cl100k": make_tokenizer("cl100k"),
    "pad first": make_tokenizer(special_tokens=(PAD, EOT)),
    "uncut": UNCUT,
}
Metrics = tuple[CorpusText, int, int, int]


def oracle(tokenizer: Tokenizer, documents: Iterable[str]) -> Metrics:
    """The text and the numbers of tokens, of single bytes and of distinct tokens, as they are defined."""
    documents = list(documents)
    delimiters = "|".join(map(re.escape, tokenizer.special_tokens))
    pieces = [
        piece for document in documents for piece in (re.split(delimiters, document) if delimiters else [document])
    ]
    ids = [i for piece in pieces for i in tokenizer.encode(piece)]
    text = CorpusText(
        bytes=sum(len(piece.encode()) for piece in pieces),
        words=sum(len(piece.split()) for piece in pieces),
        documents=len(documents),
    )
    single = sum(len(tokenizer.vocab.tokens[i]) == 1 for i in ids)
    return text, len(ids), single, len(set(ids))


def metrics(row: Evaluation) -> Metrics:
    return row.text, row.tokens, row.single_byte_tokens, row.used_tokens


def split(content: bytes, separator: str | None) -> list[str]:
    parts = content.decode().split(separator) if separator else [content.decode()]
    return parts if parts[-1] else parts[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("separator", [None, ""])
@settings(max_examples=25)
@given(
    corpora=st.lists(st.lists(contents_utf8, min_size=1, max_size=2), min_size=1, max_size=3),
    weights=st.lists(st.integers(1, 3), min_size=3, max_size=3),
)
def test_the_metrics_are_those_of_the_documents(
    separator: str | None,
    corpora: list[list[bytes]],
    weights: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Tokenizers of several patterns and separators, on several corpora of plain text."""
    folder = Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    sources = []
    for number, contents in enumerate(corpora):
        (folder / str(number)).mkdir()
        write_files(folder / str(number), contents)
        sources.append({"name": f"n{number}", "paths": str(folder / str(number)), "weight": weights[number]})
    try:
        report = evaluate(TOKENIZERS, sources, separator=separator)
    except CorpusError:  # nothing but special tokens
        contents = [content.decode() for contents in corpora for content in contents]
        assert not any(oracle(tokenizer, contents)[0].bytes for tokenizer in TOKENIZERS.values())
        return
    rows = {(row.corpus, row.tokenizer): row for row in report}
    for name, tokenizer in TOKENIZERS.items():
        ends = separator if separator is not None else EOT
        everything: list[str] = []
        for number, contents in enumerate(corpora):
            documents = [document for content in contents for document in split(content, ends)]
            assert metrics(rows[f"n{number}", name]) == oracle(tokenizer, documents)
            everything += documents
        whole = rows[None if len(corpora) > 1 else "n0", name]
        if len(corpora) > 1:
            assert metrics(whole) == oracle(tokenizer, everything)
        base = rows[whole.corpus, "gpt2"]
        if whole.tokens and base.tokens:
            assert whole.ratio == pytest.approx((whole.text.bytes / whole.tokens) / (base.text.bytes / base.tokens))


class CountingRecorder(Observer):
    """Records the progress of counting."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int | None]] = []

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self.reports.append((counted_bytes, total_bytes))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_corpus_gives_the_same_metrics(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"corpus.{form}", DOCUMENTS)
    tokenizers = {"gpt2": make_tokenizer(), "cl100k": make_tokenizer("cl100k")}
    progress = CountingRecorder()
    rows = [*evaluate(tokenizers, path, observer=progress)]
    assert [metrics(row) for row in rows] == [oracle(tokenizer, DOCUMENTS) for tokenizer in tokenizers.values()]
    assert rows[0].corpus == f"corpus.{form}"
    assert progress.reports[-1] == (path.stat().st_size,) * 2


@pytest.mark.parametrize("kind", [str, str.encode])
def test_an_iterable_of_documents_is_a_corpus(kind: Any) -> None:
    tokenizers = [make_tokenizer(), make_tokenizer(CUSTOM)]
    progress = CountingRecorder()
    report = evaluate(tokenizers, map(kind, DOCUMENTS), observer=progress)
    assert [metrics(row) for row in report] == [oracle(tokenizer, DOCUMENTS) for tokenizer in tokenizers]
    assert progress.reports[-1][1] is None


@pytest.mark.parametrize("inputs", ["-", [{"paths": ["-", "file"]}]])
def test_standard_input_is_refused(inputs: Any) -> None:
    with pytest.raises(
        ConfigError,
        match="standard input can be read only once, but evaluate reads the corpus several times: save it to a file",
    ):
        evaluate(make_tokenizer(), inputs)


def test_weights_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All corpora together are the text that there is, and not what training would count for it."""
    paths = write_files(tmp_path, [b"hello there", b"hello" + EOT.encode() + b"123"])
    sources = [{"name": name, "paths": path, "weight": 1.5} for name, path in zip("ab", paths, strict=True)]
    with caplog.at_level("INFO"):
        *_, together = evaluate(make_tokenizer(), sources)
    assert metrics(together) == oracle(make_tokenizer(), ["hello there", "hello", "123"])
    assert caplog.messages == ["weights are ignored, as each document counts once: a (1.5), b (1.5)"]


def test_a_source_can_be_sampled(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.txt", DOCUMENTS)
    numbers = {Sample(12, 7).number(0, index): document for index, document in enumerate(DOCUMENTS)}
    taken: list[str] = []
    for _, document in sorted(numbers.items()):
        if sum(len(text.encode()) for text in [*taken, document]) > 12:
            break
        taken.append(document)
    tokenizer = make_tokenizer()
    [row] = evaluate(tokenizer, {"path": path, "max_bytes": 12, "seed": 7, "name": "sample"})
    assert 0 < len(taken) < len(DOCUMENTS)
    assert (row.corpus, metrics(row)) == ("sample", oracle(tokenizer, taken))


def test_derived_metrics(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello hello" + EOT.encode() + b"x"])
    [row] = evaluate(make_tokenizer(), path)
    assert (row.bytes_per_token, row.tokens_per_word) == (12 / 4, 4 / 3)  # hello, space, hello, x
    assert (row.single_byte_share, row.used_share) == (2 / 4, 3 / row.vocab_size)
    assert row.bytes_per_second == 12 / row.seconds
    assert row.seconds_for(12_000) == pytest.approx(1000 * row.seconds)


def test_words_that_are_cut_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "hello,there héllo" + PAD + "there\n" + "aaaa" * 20 + EOT + "a\x1cb\x85c\u3000d\u200be hello "
    paths = write_files(tmp_path, [content.encode(), b"hello"])
    for size in (1, 3, 1000):
        monkeypatch.setattr(MemoryBudget, "chunk_size", lambda _, __, size=size: size)
        monkeypatch.setattr(evaluation, "_CHUNK_SIZE", size)
        [row] = evaluate(make_tokenizer(), {"name": "both", "paths": paths})
        assert metrics(row) == oracle(make_tokenizer(), [*content.split(EOT), "hello"])
        assert row.seconds > 0


def test_bytes_are_those_of_the_text_that_a_pattern_drops_or_a_normalizer_changes() -> None:
    text = "héhé ﬁ hello 123"
    tokenizers = {
        "plain": make_tokenizer(), "drop": make_tokenizer(CUSTOM, unmatched="drop"),
        "nfkd": Tokenizer(make_tokenizer().vocab, MERGES, [EOT], normalizer=["nfkd"]),
    }  # fmt: skip
    rows = [*evaluate(tokenizers, iter([text]))]
    assert {row.text.bytes for row in rows} == {len(text.encode())}
    assert [row.tokens for row in rows] == [len(tokenizer.encode(text)) for tokenizer in tokenizers.values()]


def test_a_corpus_without_text_has_no_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full, empty = write_files(tmp_path, [b"hello", b""])
    _, row, _ = evaluate(make_tokenizer(), [full, empty])
    assert caplog.messages == [f"{empty} is empty"]
    with pytest.raises(CorpusError, match=f"nothing to evaluate: no text in {Path(empty).name}"):
        evaluate(make_tokenizer(), empty)
    assert row.text == CorpusText(0, 0, 0)
    derived = row.to_dict(for_size=10)
    names = ("bytes_per_token", "tokens_per_word", "single_byte_share", "bytes_per_second", "seconds_for_size", "ratio")
    assert {derived[name] for name in names} == {None}


def test_end_of_text_strings_of_other_tokenizers_are_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(make_tokenizer(special_tokens=()), write_files(tmp_path, [f"hello{EOT}".encode() * 9]))
    assert not caplog.records


def test_special_tokens_of_white_space_are_text(tmp_path: Path) -> None:
    specials = (EOT, " " * 8, " " * 4)
    tokenizer = make_tokenizer(special_tokens=specials)
    data = [f"hello{' ' * 20}hello{EOT}{' ' * 9}\n", f"{EOT}hello\xff".encode("latin-1").decode("latin-1")]
    paths = write_files(tmp_path, [text.encode() for text in data])
    [row] = evaluate(tokenizer, {"paths": [str(path) for path in paths]})
    ids = [i for text in data for i in tokenizer.encode(text)]
    assert row.tokens == len(ids) - ids.count(tokenizer.eot_token)
    assert row.text.bytes == sum(len(text.replace(EOT, "").encode()) for text in data)


def test_text_that_is_not_utf8_is_replaced_skipped_or_refused(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [b"hello \xff" + EOT.encode() + b"hello"])
    [row] = evaluate(make_tokenizer(), path, invalid_utf8="replace")
    assert (row.text, row.tokens) == (CorpusText(14, 3, 2), 1 + 1 + 3 + 1)
    [row] = evaluate(make_tokenizer(), path, invalid_utf8="skip")
    assert (row.text, row.tokens) == (CorpusText(5, 1, 1, skipped_documents=1), 1)
    with pytest.raises(InvalidUtf8Error):
        evaluate(make_tokenizer(), path)


def test_records_that_are_null_can_be_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [path] = write_files(tmp_path, [b'{"text": null}\n{"text": "hello"}\n'])
    [row] = evaluate(make_tokenizer(), path, input_format="jsonl", bad_records="skip")
    assert (row.text, row.tokens) == (CorpusText(5, 1, 1, skipped_documents=1), 1)
    assert "1 bad record left out" in caplog.text


# ---- names and baseline ----


def test_corpora_and_tokenizers_are_named_by_the_last_parts_of_their_paths(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_tokenizer().save(tmp_path / name / "mine")
        (tmp_path / name / "x.txt").write_bytes(b"hello")
    (tmp_path / "a" / "y.txt").write_bytes(b"there")
    corpora = [tmp_path / "a" / "x.txt", str(tmp_path / "b" / "x.txt"), tmp_path / "a" / "y.txt"]
    report = evaluate([tmp_path / "a" / "mine", str(tmp_path / "b" / "mine"), make_tokenizer()], corpora)
    names = ["a/mine", "b/mine", "tokenizer 3"]
    assert [*report.tokenizers] == names
    assert [(row.corpus, row.tokenizer) for row in report] == [
        (corpus, name) for corpus in ("a/x.txt", "b/x.txt", "y.txt", None) for name in names
    ]


def test_an_input_that_is_named_twice_is_evaluated_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [path] = write_files(tmp_path, [b"hello"])
    assert len([*evaluate(make_tokenizer(), [path, path])]) == 1
    assert f"{path} is named more than once, and read once" in caplog.messages


def test_a_tokenizer_that_is_given_twice_is_measured_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_tokenizer().save(tmp_path / "mine")
    assert len([*evaluate([tmp_path / "mine", str(tmp_path / "mine")], iter(["hello"]))]) == 1
    assert caplog.messages == [f"{tmp_path / 'mine'} is named more than once, and read once"]


@pytest.mark.parametrize(
    ("given_baseline", "names", "ratios"),
    [
        (None, ["mine", "bytes"], [1, 1 / 5]),
        ("bytes", ["mine", "bytes"], [5, 1]),
        ("{folder}/bytes", ["mine", "bytes"], [5, 1]),
        ("{folder}/pairs/", ["mine", "bytes", "pairs"], [3, 3 / 5, 1]),
    ],
)
def test_all_are_compared_with_the_baseline(
    given_baseline: str | None, names: list[str], ratios: list[float], tmp_path: Path
) -> None:
    make_tokenizer().save(tmp_path / "mine")
    Tokenizer(ALPHABET, []).save(tmp_path / "bytes")
    Tokenizer({**ALPHABET, 256: b"he", 257: b"ll"}, [(b"h", b"e"), (b"l", b"l")]).save(tmp_path / "pairs")
    [corpus] = write_files(tmp_path, [b"hello"])
    baseline = given_baseline and given_baseline.format(folder=tmp_path)
    report = evaluate([tmp_path / "mine", tmp_path / "bytes"], corpus, baseline=baseline)
    assert [row.tokenizer for row in report] == names
    assert [row.ratio for row in report] == pytest.approx(ratios)
    assert report.baseline == (Path(baseline).name if baseline else "mine")


def test_a_single_tokenizer_has_no_baseline_unless_one_is_given(tmp_path: Path) -> None:
    make_tokenizer().save(tmp_path / "mine")
    [alone] = evaluate(tmp_path / "mine", iter(["hello"]))
    assert alone.ratio is None
    report = evaluate({"this": make_tokenizer()}, iter(["hello"]), baseline=tmp_path / "mine")
    assert (report.baseline, [row.tokenizer for row in report]) == ("mine", ["this", "mine"])


def test_samples_are_measured_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    [file] = write_files(tmp_path, [EOT.join("hello hello").encode()])
    [row] = evaluate(make_tokenizer(), {"name": "letters", "paths": str(file), "max_bytes": 5})
    assert row.text.bytes == 5
    assert "only random samples of these sources are read: letters (5 bytes)" in caplog.messages


def test_an_unknown_baseline_is_an_error_with_the_known_names() -> None:
    with pytest.raises(
        TokenizerNotFoundError, match=r"^baseline no/such/path: no such file or folder.*; the tokenizers are: mine$"
    ):
        evaluate({"mine": make_tokenizer()}, iter(["hello"]), baseline="no/such/path")


# ---- the report ----


def test_the_report_has_everything(tmp_path: Path) -> None:
    paths = write_files(tmp_path, [b"hello", b"there"])
    tokenizers = {"a[b]": make_tokenizer(), "custom": make_tokenizer(r"\w", special_tokens=())}
    report = evaluate(tokenizers, paths)
    described = report.to_dict(for_size=100)
    assert described["evaluations"] == [row.to_dict(100) for row in report]
    assert (described["baseline"], described["for_size"]) == ("a[b]", 100)
    assert len(MERGES) + 256 == described["tokenizers"][1]["vocab_size"]
    json.dumps(described)


def test_the_longest_tokens_exclude_special_tokens() -> None:
    longest = longest_tokens(make_tokenizer().vocab, 3)
    assert [(token.id, token.bytes) for token in longest] == [(259, b"hello"), (258, b"hell"), (256, b"he")]


@pytest.mark.parametrize(
    ("tokenizers", "inputs", "error"),
    [
        ({}, ["x"], ConfigError),
        ([], ["x"], ConfigError),
        ({"t": make_tokenizer()}, [], ConfigError),
        ({"t": make_tokenizer()}, ["none"], CorpusError),
        ({"t": make_tokenizer()}, [{"name": "x"}], ConfigError),
    ],
)
def test_missing_tokenizers_or_inputs_are_errors(
    tokenizers: Any, inputs: Sequence[Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        evaluate(tokenizers, inputs)
