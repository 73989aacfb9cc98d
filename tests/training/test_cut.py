"""Superwords of a large corpus: the merges of whole chunks, learned from chunks that were cut at rare pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from available import skip_missing
from inline_ray import InlineRay
from interrupting import interrupting

import bpeflow
from bpeflow.cli.merge import merge
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.segments import SegmentRecord, count_segment
from bpeflow.errors import ConfigError, FormatError
from bpeflow.look.page import write_page
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.training import cut
from bpeflow.training.train import TrainResult, train

SIZES: dict[str, Any] = {"superwords": True, "vocab_size": 460, "transition_size": 400}

#: The files whose bytes do not depend on the cut.
TOKENIZER = ("vocab.json", "merges.txt")


@pytest.fixture(autouse=True)
def always_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    monkeypatch.setattr(cut, "CUT_FROM", 1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 5))) for _ in range(150)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    texts = (" ".join(rng.choices(words, weights, k=rng.randint(1, 400))) for _ in range(300))
    documents = "".join(text + rng.choice([". ", ". ", "<|endoftext|>"]) for text in texts)
    path.write_text(documents + "<|endoftext|>" + "a" * 500 + "ab" * 500 + " " * 500)
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without the cut."""
    out_dir = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "CUT_FROM", 10**9)
        result = train({"input": str(corpus), "out_dir": out_dir, **SIZES})
    assert result.counts.cut is None
    return out_dir


def assert_same(out_dir: Path, whole: Path) -> None:
    for file in TOKENIZER:
        assert (out_dir / file).read_bytes() == (whole / file).read_bytes(), file
    assert not (out_dir / "unfinished").exists()


def report_of(result: TrainResult) -> Any:
    assert result.report.counting is not None
    return result.report.counting.cut


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"executor": "processes", "num_counter": 3, "num_merger": 2, "chunk_size": "64kb"},
        {"segment_size": "25kb"},
        {"segment_size": "50kb", "executor": "processes"},
        {"memory_limit": "16mb", "num_counter": 8, "chunk_size": "64kb", "executor": "processes"},
        {"tie_break": "huggingface"},
    ],
    ids=str,
)
def test_the_tokenizer_is_that_of_whole_chunks(
    options: dict[str, Any], corpus: Path, whole: Path, tmp_path: Path
) -> None:
    if "tie_break" in options:
        whole = tmp_path / "whole"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cut, "CUT_FROM", 10**9)
            train({"input": str(corpus), "out_dir": whole, **SIZES, **options})
    result = train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES, **options})
    assert_same(tmp_path / "run", whole)
    report = report_of(result)
    assert report.too_high == () and report.frequent_cells >= 180 and report.cells > report.frequent_cells
    assert result.counts.cut is not None and result.counts.cut.lowest_count == report.lowest_count
    loaded = PretokenCounts.load(tmp_path / "run" / "counts.npz")
    assert loaded == result.counts and loaded.cut == result.counts.cut


def test_a_cut_at_too_frequent_cells_is_repeated_and_reported(
    corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "PAIRS_PER_MERGE", 1 / 8)
    monkeypatch.setattr(cut, "frequent_cells", lambda cells, most, least: original(cells, int(most), least))
    original = bpeflow.counting.units.frequent_cells
    result = train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES})
    assert_same(tmp_path / "run", whole)
    report = report_of(result)
    assert len(report.too_high) >= 1 and min(report.too_high) > report.lowest_count
    assert any("cut again" in line for _, line in result.describe())


def test_mistakes_in_the_corpus_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "in the end of the day"}\n' * 40 + "{}\n")
    (tmp_path / "marked.txt").write_text("a b c <|im_end|> a b c d " * 99)
    values = {"input": str(tmp_path), "bad_records": "skip", "superwords": True}
    for init_from in (None, bpeflow.Tokenizer.train([b"abc a b"], 260)):
        caplog.clear()
        result = train(values | {"init_from": init_from, "vocab_size": 290})
        assert result.counts.cut is not None
        messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert sum("1 bad record left out" in message for message in messages) == 1, messages
        assert sum("<|im_end|>" in message for message in messages) == 1, messages
        assert not any("matches nothing" in message for message in messages), messages


@pytest.mark.parametrize("cut_from", [1, 10**9])
def test_a_second_pattern_that_matches_nothing_is_reported_once(
    cut_from: int, corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cut, "CUT_FROM", cut_from)
    train({"input": str(corpus), **SIZES, "superword_pattern": "qq+"})
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("the pattern 'qq+' matches nothing in the corpus" in message for message in messages) == 1, messages


def test_fragments_are_called_so(corpus: Path, tmp_path: Path) -> None:
    result = train({"input": str(corpus), "out_dir": tmp_path, **SIZES})
    assert any(" fragments of chunks, " in line for _, line in result.describe())
    write_page(tmp_path, tmp_path / "page.html")
    assert "or are of fragments" in (tmp_path / "page.html").read_text()


def test_too_few_pairs_are_no_reason_to_repeat(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a b c d e a b " * 3)
    result = train({"input": str(tmp_path / "corpus.txt"), "superwords": True, "vocab_size": 400})
    assert report_of(result).too_high == ()
    assert len(result.vocab or ()) < 400


def test_a_corpus_without_pairs_is_counted_whole(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("<|endoftext|>".join("ab" * 20))
    result = train({"input": str(tmp_path / "corpus.txt"), "superwords": True, "vocab_size": 400})
    assert result.counts.cut is None
    assert result.merges == ()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, as a run sees it."""


def counted(monkeypatch: pytest.MonkeyPatch, stop_at: int | None) -> list[Path]:
    """Record the segments that are counted, and interrupt the run before one of them."""
    paths: list[Path] = []

    def count(path: Path, *rest: Any) -> SegmentRecord:
        if len(paths) == stop_at:
            raise Interrupted
        paths.append(path)
        return count_segment(path, *rest)

    monkeypatch.setattr("bpeflow.counting.segments.count_segment", count)
    return paths


def test_a_run_in_segments_resumes_in_either_pass(
    corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"input": str(corpus), **SIZES, "segment_size": "50kb"}
    all_segments = counted(monkeypatch, None)
    train({**values, "out_dir": tmp_path / "run"})
    per_pass = len(all_segments) // 3
    assert per_pass >= 3 and len(all_segments) == 3 * per_pass
    for number, stop_at in enumerate((per_pass + 1, 2 * per_pass, 2 * per_pass + 2)):
        out_dir = tmp_path / f"stopped {number}"
        counted(monkeypatch, stop_at)
        with pytest.raises(Interrupted):
            train({**values, "out_dir": out_dir})
        with pytest.raises(bpeflow.errors.BpeflowError):  # counted segments are at stake
            train({**values, "out_dir": out_dir})
        rest = counted(monkeypatch, None)
        train({"out_dir": out_dir, "resume": True})
        assert len(rest) == len(all_segments) - stop_at
        assert_same(out_dir, whole)


@pytest.mark.parametrize("call", [2, 3])
def test_a_run_interrupted_between_the_passes_resumes(
    call: int, corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(CorpusCounter, "count", interrupting(CorpusCounter.count, call, Interrupted))
        with pytest.raises(Interrupted):
            train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES})
    train({"out_dir": tmp_path / "run", "resume": True})
    assert_same(tmp_path / "run", whole)


def test_a_repeated_cut_can_be_resumed(
    corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut.CutCounting, "lower", interrupting(cut.CutCounting.lower, 1, Interrupted))
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(cut, "PAIRS_PER_MERGE", 1)
        patch.setattr(cut, "frequent_cells", lambda cells, most, least: original(cells, most // 9, least))
        original = bpeflow.counting.units.frequent_cells
        train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES})
    train({"out_dir": tmp_path / "run", "resume": True})
    assert_same(tmp_path / "run", whole)


def test_merging_again_stays_within_what_the_cut_allows(corpus: Path, whole: Path, tmp_path: Path) -> None:
    train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES})
    merge(tmp_path / "run", None, {"vocab_size": 430, "out_dir": tmp_path / "less"}, quiet=True)
    vocab = bpeflow.Tokenizer.load(whole).vocab
    assert bpeflow.Tokenizer.load(tmp_path / "less").vocab.tokens == vocab.tokens[:430]
    with pytest.raises(ConfigError, match=r"cut for fewer superwords .* give at most [\d,]+, or train") as caught:
        merge(tmp_path / "run", None, {"vocab_size": 2000, "out_dir": tmp_path / "more"}, quiet=True)
    most = int(str(caught.value).split("at most ")[1].split(", or")[0].replace(",", ""))
    with pytest.raises(ConfigError, match="cut for fewer superwords"):
        merge(tmp_path / "run", None, {"vocab_size": most + 1, "out_dir": tmp_path / "more"}, quiet=True)
    merge(tmp_path / "run", None, {"vocab_size": most, "out_dir": tmp_path / "most"}, quiet=True)
    assert len(bpeflow.Tokenizer.load(tmp_path / "most").vocab) == most
    counts = tmp_path / "run" / "counts.npz"
    with pytest.raises(ConfigError, match="were cut for superwords"):
        values = {"superwords": False, "transition_size": None, "vocab_size": 300, "out_dir": tmp_path / "bpe"}
        merge(tmp_path / "run", None, values, quiet=True)
    with pytest.raises(ConfigError, match="were cut for superwords"):
        bpeflow.learn_merges(PretokenCounts.load(counts), 300)
    with pytest.raises(FormatError, match=r"only \.npz"):
        PretokenCounts.load(counts).write(tmp_path / "counts.tsv")
    with pytest.raises(FormatError, match="cannot be added"):
        PretokenCounts.load(counts) + PretokenCounts.load(counts)


def test_a_tokenizer_is_extended_from_fragments(corpus: Path, whole: Path, tmp_path: Path) -> None:
    """Also one that takes whole pre-tokens: fragments are not whole."""
    base = bpeflow.Tokenizer.load(whole / "first_stage")
    for whole_tokens in (False, True):
        extended = bpeflow.Tokenizer.from_spec(
            bpeflow.formats.tokenizer_spec.TokenizerSpec(base.vocab, "gpt2", whole_tokens)
        )
        results = []
        for cut_from in (10**9, 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cut, "CUT_FROM", cut_from)
                values = {"input": str(corpus), "init_from": extended, "superwords": True, "vocab_size": 460}
                results.append(train(values))
        assert results[0].counts.cut is None and results[1].counts.cut is not None
        assert results[0].merges == results[1].merges


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"thin_rare": {"below": 3, "keep": 0.5}}, "thin_rare selects among whole chunks"),
        ({"superword_pattern": r"(?<=x)a|[^ ]+ [^ ]+"}, "by the native scanner"),
    ],
    ids=str,
)
def test_what_cannot_be_cut_is_counted_whole(
    options: dict[str, Any], reason: str, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        result = train({"input": str(corpus), **SIZES, **options})
    assert result.counts.cut is None
    assert reason in caplog.text


def test_small_corpora_and_iterators_are_counted_whole(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [corpus.read_text()]
    assert train({"input": texts and [text.encode() for text in texts], **SIZES}).counts.cut is not None
    base = bpeflow.Tokenizer.train([texts[0].encode()], 400)
    values = {"init_from": base, "superwords": True, "vocab_size": 460}
    assert train({"input": iter(texts), **values}).counts.cut is None
    monkeypatch.setattr(cut, "CUT_FROM", corpus.stat().st_size + 1)
    assert train({"input": str(corpus), **SIZES}).counts.cut is None


def test_tasks_of_a_cluster_cut_as_well(
    corpus: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    InlineRay().use(monkeypatch)
    options = {"engine": {"kind": "ray"}, "segment_size": "50kb"}
    result = train({"input": str(corpus), "out_dir": tmp_path / "run", **SIZES, **options})
    assert report_of(result) is not None
    assert_same(tmp_path / "run", whole)
