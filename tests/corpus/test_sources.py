"""Sources: their weights and samples, and what a run reports about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus_forms import SEPARATOR, pieces, write
from counted import assert_same, count
from hypothesis import given
from hypothesis import strategies as st

import bpeflow
from bpeflow.cli.main import main
from bpeflow.config import Settings, make_settings
from bpeflow.corpus.text_rules import Sample
from bpeflow.counting.count import CorpusCounts
from bpeflow.errors import ConfigError, CorpusError, ResumeError


@given(sizes=st.lists(st.integers(0, 50), max_size=60), max_bytes=st.integers(1, 800), seed=st.integers(0, 5))
def test_documents_are_taken_in_order_of_their_numbers_while_they_fit(
    sizes: list[int], max_bytes: int, seed: int
) -> None:
    sample = Sample(max_bytes, seed)
    numbers = [sample.number(0, index) for index in range(len(sizes))]
    threshold = sample.threshold(zip(numbers, sizes, strict=True))
    expected: set[int] = set()
    total = 0
    for number, size in sorted(zip(numbers, sizes, strict=True)):
        total += size
        if total > max_bytes:
            break
        expected.add(number)
    assert {number for number in numbers if number < threshold} == expected


def test_numbers_are_the_same_on_every_machine() -> None:
    assert Sample(1, seed=7).number(2, 3) == 13317231211106649246 == Sample(99, seed=7).number(2, 3)
    assert len({Sample(1, seed).number(file, index) for seed in (0, 1) for file in (0, 1) for index in (0, 1)}) == 8


def mixed(tmp_path: Path, documents: list[str], **options: object) -> CorpusCounts:
    parts = list(pieces(documents, 3))
    sources = [
        {"name": "plain", "path": str(write(tmp_path / "a.txt", parts[0])), "weight": 3},
        {"name": "lines", "paths": [str(write(tmp_path / "b.jsonl.gz", parts[1]))], "weight": 2},
        str(write(tmp_path / "c.txt", parts[2])),
    ]
    return count(sources, **options)


@pytest.mark.parametrize("setting", ["chunk_size", "segment_size"])
def test_a_size_without_its_unit_is_refused(setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """8 for 8mb would take minutes for megabytes. In a corpus of a few kilobytes, small pieces are fine."""
    path, tokenizer = tmp_path / "a.txt", bpeflow.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [])
    train = ["--input", str(path), "--vocab_size", "257", "--out_dir", str(tmp_path / "run"), f"--{setting}=8"]
    path.write_bytes(b"a" * 80_001)
    assert main(train) == 2
    message = "8 would divide 80.0 kB into about 10,000 pieces, which takes very long; give more, with a unit"
    assert capsys.readouterr().err.startswith(f"bpeflow: {setting}: {message}, such as 8")
    assert not (tmp_path / "run").exists()
    if setting == "chunk_size":
        with pytest.raises(ConfigError, match=message):
            tokenizer.encode_file(path, tmp_path / "a.bin", chunk_size=8)
    path.write_bytes(b"a" * 2_000)
    assert main(train) == 0


@pytest.mark.usefixtures("scanner")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"executor": "processes", "num_counter": 2, "num_merger": 3, "chunk_size": 3000},
        {"executor": "processes", "num_counter": 2, "memory_limit": "16mb", "chunk_size": 100},
    ],
    ids=str,
)
def test_a_weight_multiplies_the_counts_of_its_source(
    tmp_path: Path, documents: list[str], options: dict[str, object]
) -> None:
    parts = list(pieces(documents, 3))
    repeated = [*parts[0]] * 3 + [*parts[1]] * 2 + [*parts[2]]
    counted = mixed(tmp_path, documents, **options)
    assert counted.counts == bpeflow.count(iter(repeated), special_tokens=[SEPARATOR])
    assert counted.documents.documents == 400
    assert [source.documents for source in counted.documents.sources] == [len(parts[2]), len(parts[0]), len(parts[1])]


@pytest.mark.usefixtures("scanner")
def test_weights_with_decimals_are_exact(
    tmp_path: Path, documents: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Over their least common denominator, they count as whole weights do, with thresholds in documents."""
    parts = list(pieces(documents, 3))
    paths = [str(write(tmp_path / f"{number}.txt", part)) for number, part in enumerate(parts)]

    def trained(weights: list[float], out: str, **options: object) -> bpeflow.TrainResult:
        sources = [{"path": path, "weight": weight} for path, weight in zip(paths, weights, strict=True)]
        values = {"input": sources, "vocab_size": 400, "out_dir": tmp_path / out, "special_tokens": [SEPARATOR]}
        return bpeflow.train({**values, **options})

    every = trained([10, 5, 2], "every").learned
    assert every is not None
    least = every.counts[20] // 10  # in documents of the first source
    whole = trained([10, 5, 2], "whole", min_frequency=10 * least)
    assert 20 < len(whole.merges) < len(every)
    for number, options in enumerate(({}, {"executor": "processes", "num_counter": 2, "chunk_size": 3000})):
        exact = trained([1, 0.5, 0.2], f"exact{number}", min_frequency=least, **options)
        assert exact.counts == whole.counts
        assert exact.merges == whole.merges
        assert [source.weight for source in exact.report.corpus.sources] == [1, 0.5, 0.2]
        assert (exact.report.corpus.count_unit, whole.report.corpus.count_unit) == (10, 1)
        assert "weights have decimals: each occurrence counts 10 times its weight" in str(exact)
    assert "weights have decimals" not in str(whole)
    assert main(["merge", "--counts", str(tmp_path / "exact0"), "--out_dir", str(tmp_path / "again")]) == 0
    assert tuple(bpeflow.Tokenizer.load(tmp_path / "again").vocab.merges) == whole.merges
    capsys.readouterr()
    for command in (["show", "--explain"], ["inspect"]):
        for run in ("exact0", "again", "whole"):
            assert main([command[0], str(tmp_path / run), *["low"][: len(command) - 1], *command[1:]]) == 0
            shown = capsys.readouterr()
            said = "each occurrence counts 10 times its weight" in shown.out + shown.err
            assert said == (run != "whole"), (command, run)
    resumed = trained([10, 5, 2], "whole", min_frequency=10 * least, resume=True)
    assert resumed.merges == whole.merges
    with pytest.raises(ResumeError, match=r"counted something else \(sources\.0\.weight: 10 → 1; "):
        trained([1, 0.5, 0.2], "whole", min_frequency=10 * least, resume=True)


def test_thresholds_of_thinning_stay_in_documents() -> None:
    values = {"sources": [{"path": "a", "weight": 0.25}], "vocab_size": 300, "thin_rare": {"below": 5, "keep": 0.5}}
    settings = make_settings(Settings, values).for_learning()
    assert settings.thin_rare is not None
    assert (settings.thin_rare.below, settings.min_frequency) == (20, 4)


def test_a_run_reports_its_sources(tmp_path: Path, documents: list[str]) -> None:
    write(tmp_path / "a.txt", documents[:100])
    write(tmp_path / "b.jsonl", documents[100:])
    sources = [
        {"name": "web", "path": f"{tmp_path}/a.txt", "weight": 2},
        {"name": "books", "path": f"{tmp_path}/b.jsonl", "max_bytes": 20_000, "seed": 7},
    ]
    result = bpeflow.train({"input": sources, "vocab_size": 300, "out_dir": tmp_path / "run"})
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    web, books = report["corpus"]["sources"]
    assert (web["name"], web["weight"], web["files"], web["documents"]) == ("web", 2, 1, 100)
    assert books["sample"] == {"max_bytes": 20_000, "seed": 7}
    assert 10_000 < books["bytes"] <= 20_000
    assert report["corpus"]["bytes"] == web["bytes"] + books["bytes"]
    assert result.report.corpus.files == 2


@pytest.mark.parametrize("form", ["txt", "jsonl", "parquet", "txt.gz", "jsonl.xz"])
def test_a_sample_depends_only_on_the_documents_and_the_seed(tmp_path: Path, documents: list[str], form: str) -> None:
    def sample(path: Path, seed: int, **options: object) -> CorpusCounts:
        return count([{"name": "it", "path": str(path), "max_bytes": 30_000, "seed": seed}], **options)

    first = sample(write(tmp_path / "corpus.txt", documents), 1)
    again = sample(
        write(tmp_path / f"corpus.{form}", documents), 1, executor="processes", num_counter=2, chunk_size=1000
    )
    assert again.counts == first.counts
    assert again.documents == first.documents
    assert 20_000 < first.documents.bytes <= 30_000
    assert sample(tmp_path / f"corpus.{form}", 2).counts != first.counts


def test_a_sample_larger_than_its_source_is_all_of_it(
    tmp_path: Path, documents: list[str], expected: CorpusCounts
) -> None:
    path = write(tmp_path / "corpus.txt", documents)
    assert_same(count({"name": "it", "path": str(path), "max_bytes": "1gb"}), expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"name": "a", "path": "x", "weigth": 2}, r"sources\.0\.weigth \(did you mean sources\.weight\?\)"),
        ({"name": "a", "path": "x", "weight": 0}, r"sources\.0\.weight"),
        ({"name": "a", "path": "x", "weight": "nan"}, r"sources\.0\.weight"),
        ({"name": "a", "path": "x", "weight": 1 / 3}, r"sources\.0\.weight: need a number with at most three decimals"),
        ({"name": "a"}, r"sources\.0: a source needs paths"),
        ({"name": "a", "path": "no/such"}, "source a: the input no/such does not exist"),
        ([{"name": "a", "path": "x"}, {"name": "a", "path": "y"}], "two sources have the name 'a'"),
    ],
)
def test_an_invalid_source_is_refused(source: object, message: str) -> None:
    with pytest.raises((ConfigError, CorpusError), match=message):
        count(source)
