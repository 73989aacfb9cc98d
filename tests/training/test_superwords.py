"""Training with superwords: a first stage, then the merges of a recount over the chunks of the second pattern."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import interrupting
from naive_extension import naive_extension
from peers import encoders
from tasks import tie_breaks

import bpeflow
from bpeflow.backends.base import MergeBackend
from bpeflow.cli.main import main
from bpeflow.config import Settings, make_settings
from bpeflow.counting.count import CorpusCounter
from bpeflow.errors import AlreadyExistsError, BpeflowError, ConfigError, ResumeError
from bpeflow.look.page import write_page
from bpeflow.look.vocabulary import inspect_vocab
from bpeflow.pretokenize.patterns import PUBLISHED_PATTERNS
from bpeflow.training import cut
from bpeflow.training.superwords import rereadable
from bpeflow.training.train import TrainResult, train

TEXT = "of the people, by the people, for the people: of the many. in the end of the day: of the 12,345 days ... \n" * 3

_parts = st.sampled_from(["a", "b", "ab ", " ", "  ", ": ", "a: b", "\n", "12", "--", "é ", "of the ", "the "])
texts = st.lists(st.lists(_parts, max_size=25).map("".join), min_size=1, max_size=4)


def chunks_of(text: str, pattern: str) -> list[bytes]:
    """Split by a pattern, and keep what it does not match."""
    chunks, end = [], 0
    for match in regex.finditer(pattern, text):
        chunks += [text[end : match.start()], match[0]]
        end = match.end()
    return [chunk.encode() for chunk in (*chunks, text[end:]) if chunk]


def count_chunks(documents: Iterable[str], pattern: str) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for document in documents:
        for chunk in chunks_of(document, pattern):
            counts[chunk] = counts.get(chunk, 0) + 1
    return counts


def learn(documents: Iterable[str], **values: Any) -> TrainResult:
    return train({"input": [document.encode() for document in documents], "superwords": True, **values})


@settings(max_examples=60)
@given(
    documents=texts, tie_break=tie_breaks, words=st.integers(0, 12), more=st.integers(1, 12),
    max_words=st.sampled_from([None, 1, 2, 4]), colon_rule=st.booleans(), min_frequency=st.sampled_from([1, 2]),
    cut_from=st.sampled_from([0, 10**9]), pairs_per_merge=st.sampled_from([1, 3]),
)  # fmt: skip
def test_superwords_equal_a_recount_after_each_merge(
    backends: list[MergeBackend],
    documents: list[str],
    tie_break: str,
    words: int,
    more: int,
    max_words: int | None,
    colon_rule: bool,
    min_frequency: int,
    cut_from: int,
    pairs_per_merge: int,
) -> None:
    if not "".join(documents):
        return
    options = {
        "tie_break": tie_break, "max_words": max_words, "colon_rule": colon_rule, "min_frequency": min_frequency,
        "special_tokens": ["<s>"], "vocab_size": 257 + words + more, "transition_size": 257 + words,
    }  # fmt: skip
    shared = ("tie_break", "min_frequency", "special_tokens")
    first = train(
        {"input": [document.encode() for document in documents], "vocab_size": 257 + words}
        | {name: options[name] for name in shared}
    )
    assert first.spec
    asked = make_settings(Settings, {"input": "-", "superwords": True, **options})
    second = count_chunks(documents, str(PUBLISHED_PATTERNS["superbpe"]))
    missing = options["vocab_size"] - len(first.spec.vocab)  # type: ignore[operator]
    expected = naive_extension(first.spec, second, asked, missing)
    for name in dict.fromkeys(backend.name for backend in backends):
        with patch.multiple(cut, CUT_FROM=cut_from, PAIRS_PER_MERGE=pairs_per_merge):
            learned = learn(documents, backend=name, **options)
        assert learned.merges == (*first.merges, *expected.merges), name
        assert learned.learned is not None and list(learned.learned.counts[len(first.merges) :]) == expected.counts


def test_the_tokenizer_splits_by_the_second_pattern_and_encodes_as_other_libraries_do(tmp_path: Path) -> None:
    result = learn([TEXT], vocab_size=330, transition_size=290, out_dir=tmp_path)
    tokenizer = bpeflow.Tokenizer.load(tmp_path)
    assert tokenizer.pattern == PUBLISHED_PATTERNS["superbpe"]
    assert any(b" the people" in token for token in tokenizer.vocab.tokens)
    assert not any(b": " in token for token in tokenizer.vocab.tokens)
    ids = tokenizer.encode(TEXT)
    assert ids == result.tokenizer.encode(TEXT)
    assert {name: encode(TEXT) for name, encode in encoders(tokenizer.to_spec()).items()} == {
        "tiktoken": ids,
        "tokenizers": ids,
    }
    assert tokenizer.decode(ids) == TEXT


def test_smaller_sizes_are_of_the_first_stage_up_to_the_transition(tmp_path: Path) -> None:
    learn([TEXT], vocab_sizes=[270, 289, 290, 291, 300, 320], transition_size=290, out_dir=tmp_path)
    plain = train({"input": [TEXT.encode()], "vocab_sizes": [270, 290]}).vocab
    assert plain and plain.merge_counts
    for size in (270, 289, 290, 291, 300):
        found = bpeflow.Tokenizer.load(tmp_path / f"vocab_{size}")
        assert found.vocab_size == size
        assert (found.pattern == "gpt2") == (size <= 290)
        assert found.vocab.merges[:33] == plain.merges[: size - 257]
        assert found.vocab.merge_counts and None not in found.vocab.merge_counts
        assert found.vocab.merge_counts[:33] == plain.merge_counts[: size - 257]
    assert (
        bpeflow.Tokenizer.load(tmp_path / "vocab_300").vocab.tokens
        == bpeflow.Tokenizer.load(tmp_path).vocab.tokens[:300]
    )


def test_the_transition_is_at_three_quarters_by_default(tmp_path: Path) -> None:
    result = learn([TEXT], vocab_size=360, out_dir=tmp_path)
    assert result.report.settings["transition_size"] == 270
    assert len(bpeflow.Tokenizer.load(tmp_path / "first_stage").vocab) == 270


def test_a_text_with_too_few_pairs_for_the_first_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    run = tmp_path / "run"
    result = learn([str(tmp_path / "text")], vocab_size=4000, transition_size=3000, out_dir=run)
    entries = len(bpeflow.Tokenizer.load(run / "first_stage").vocab)
    assert entries < 3000
    assert ("", f"superwords begin at {entries:,} entries") in [*result.describe()]
    monkeypatch.chdir(tmp_path)
    flags = ["--superwords", "--transition_size", "3000", "--vocab_size", "3500", "--out_dir", "again", "--quiet"]
    assert main(["merge", "--counts", "run", *flags]) == 0
    assert (tmp_path / "again" / "merges.txt").read_bytes() == (run / "merges.txt").read_bytes()


def test_superwords_are_reported_and_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = learn([TEXT], vocab_sizes=[280, 295, 300], transition_size=290, out_dir=tmp_path)
    assert ("", "superwords begin at 290 entries") in [*result.describe()]
    vocab = result.tokenizer.vocab
    tokens = [token for i, token in enumerate(vocab.tokens) if i not in vocab.special_tokens.values()]
    words = inspect_vocab(result.tokenizer).words
    assert words == Counter(len(token.decode(errors="ignore").split()) for token in tokens)
    assert words[2] > 0
    assert main(["inspect", str(tmp_path)]) == 0
    assert re.search(r"several words +\d+ tokens?: \d+ of 2", capsys.readouterr().out)
    for folder, stages in (".", {1, 2}), ("vocab_295", {1, 2}), ("vocab_280", {1}):
        assert main(["show", str(tmp_path / folder), " of the people", "--explain"]) == 0
        shown = capsys.readouterr().out
        ranks = {int(rank): int(stage) for stage, rank in re.findall(r"\(stage (\d), rank (\d+), count \d+\)", shown)}
        assert ranks and ranks == {rank: 1 + (rank >= 33) for rank in ranks} and {*ranks.values()} == stages
    (tmp_path / "vocab_295").rename(tmp_path / "other")
    assert main(["show", str(tmp_path / "other"), " of the people", "--explain"]) == 0
    assert "stage" not in capsys.readouterr().out
    write_page(tmp_path, tmp_path / "page.html")
    assert "The second stage, of superwords, begins after 33 merges." in (tmp_path / "page.html").read_text()


def test_extending_a_tokenizer_by_superwords_keeps_its_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    base = bpeflow.Tokenizer.train([TEXT.encode()], 290, pattern="o200k")
    more = bpeflow.Tokenizer.train([TEXT.encode()], 310, init_from=base, superwords=True)
    assert more.vocab.tokens[:290] == base.vocab.tokens
    assert more.pattern == PUBLISHED_PATTERNS["superbpe"]
    assert "chunks are counted whole, with the same result: " in caplog.text
    at_once = bpeflow.Tokenizer.train([TEXT.encode()], 310, pattern="o200k", superwords=True, transition_size=290)
    assert more.vocab.tokens == at_once.vocab.tokens


@pytest.mark.parametrize("pattern", ["superbpe", ["superbpe", "[^d]+"]])
def test_extending_a_tokenizer_with_superwords_continues_its_second_stage(
    pattern: str | list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the settings of its run, unless others are given."""
    caplog.set_level("INFO")
    values = {**corpus_in(tmp_path), "pattern": "o200k", "superword_pattern": pattern, "max_words": 2}
    train({**values, "vocab_size": 294, "out_dir": tmp_path / "run", "output": "huggingface"})
    whole = train({**values, "vocab_size": 302}).tokenizer
    extended = {"input": values["input"], "vocab_size": 302}
    for base in (tmp_path / "run", tmp_path / "run" / "tokenizer.json"):
        for superwords in ({}, {"superwords": True}):
            caplog.clear()
            more = train({**extended, "init_from": base, **superwords}).tokenizer
            assert (more.vocab.tokens, more.pattern) == (whole.vocab.tokens, whole.pattern)
            assert f"{base} has superwords: its second stage continues" in caplog.text
        for superwords in ({}, {"superwords": True}):
            more = train({**extended, "init_from": base, "max_words": 3, **superwords}).tokenizer
            assert more.vocab.tokens != whole.vocab.tokens
        more = train({**extended, "init_from": base, "superwords": False}).tokenizer  # by its pattern, without limits
        assert max(len(token.split()) for token in more.vocab.tokens) > 2


def test_the_limits_of_superwords_extend_no_tokenizer_without_them() -> None:
    base = bpeflow.Tokenizer.train([TEXT.encode()], 290, pattern="o200k")
    with pytest.raises(ConfigError, match="max_words: has no effect without superwords"):
        bpeflow.Tokenizer.train([TEXT.encode()], 310, init_from=base, max_words=3)


def test_without_its_run_a_tokenizer_with_superwords_is_known_by_its_pattern() -> None:
    part, whole = (learn([TEXT], vocab_size=size, transition_size=290).tokenizer for size in (294, 302))
    assert bpeflow.Tokenizer.train([TEXT.encode()], 302, init_from=part).vocab.tokens == whole.vocab.tokens


def corpus_in(folder: Path) -> dict[str, Any]:
    (folder / "corpus.txt").write_text(TEXT)
    return {"input": str(folder / "corpus.txt"), "superwords": True, "vocab_size": 330, "transition_size": 290}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, as a run sees it."""


STAGES = ["first count", "first merges", "second count", "second merges"]


@pytest.mark.parametrize(
    ("stage", "end"), [*((stage, Interrupted) for stage in STAGES), *((stage, MemoryError) for stage in STAGES[1:])]
)
def test_a_run_interrupted_in_either_stage_resumes_to_the_same_bytes(
    stage: str, end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = corpus_in(tmp_path)
    train({**values, "out_dir": tmp_path / "whole"})
    out_dir = tmp_path / "interrupted"
    name = "bpeflow.training.train." + ("CorpusCounter.count" if "count" in stage else "learn_with_settings")
    original = CorpusCounter.count if "count" in stage else bpeflow.training.train.learn_with_settings
    with monkeypatch.context() as patched:
        patched.setattr(name, interrupting(original, 1 if "first" in stage else 2, end))
        with pytest.raises(end):
            train({**values, "out_dir": out_dir})
    assert not (out_dir / "first_stage").exists()
    if stage != "first count":
        with pytest.raises(ResumeError, match="first_stage/"):
            train({**values, "out_dir": out_dir, "transition_size": 300})
        with pytest.raises(ResumeError, match="start over with restart=True"):
            train({**values, "out_dir": out_dir, "resume": True, "pattern": "cl100k"})
        with pytest.raises(ResumeError, match="has learned the first stage of superwords: undo the change"):
            plain = {"input": values["input"], "vocab_size": 330, "pattern": PUBLISHED_PATTERNS["superbpe"]}
            train({**plain, "out_dir": out_dir, "resume": True})
    train({"out_dir": out_dir, "resume": True})
    files = {str(path.relative_to(tmp_path / "whole")) for path in (tmp_path / "whole").rglob("*.*")}
    assert {str(path.relative_to(out_dir)) for path in out_dir.rglob("*.*")} == files
    for file in files - {"run.json", "first_stage/run.json"}:
        assert (out_dir / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_finished_run_is_neither_replaced_nor_repeated_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {**corpus_in(tmp_path), "out_dir": tmp_path / "run"}
    train(values)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")}
    with pytest.raises(AlreadyExistsError):
        train(values)
    train({**values, "resume": True})
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")} == before
    with pytest.raises(ResumeError, match="max_words"):
        train({**values, "resume": True, "max_words": 2})
    assert "are ignored" not in caplog.text
    train({**values, "overwrite": True, "max_words": 1})
    vocab = bpeflow.Tokenizer.load(tmp_path / "run").vocab
    assert max(len(token.split()) for token in vocab.tokens) == 1


def test_a_failed_second_stage_leaves_the_earlier_first_stage_beside_the_earlier_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bpeflow.cli.merge import merge

    values, out_dir = corpus_in(tmp_path), tmp_path / "run"
    train({**values, "out_dir": out_dir})
    before = {path: path.read_bytes() for path in out_dir.rglob("*.*")}
    with monkeypatch.context() as patched:
        patched.setattr(CorpusCounter, "count", interrupting(CorpusCounter.count, 2, MemoryError))
        with pytest.raises(MemoryError):
            train({**values, "pattern": "cl100k", "out_dir": out_dir, "overwrite": True})
    assert {path: path.read_bytes() for path in before} == before
    merge(out_dir, None, {"out_dir": tmp_path / "again"}, quiet=True)
    assert (tmp_path / "again" / "vocab.json").read_bytes() == (out_dir / "vocab.json").read_bytes()


def test_the_next_run_cleans_up_after_a_killed_first_stage_even_if_it_is_refused(tmp_path: Path) -> None:
    values, out_dir = corpus_in(tmp_path), tmp_path / "run"
    train({**values, "out_dir": tmp_path / "whole"})
    shutil.copytree(tmp_path / "whole" / "first_stage", first := out_dir / "unfinished" / "first_stage")
    (scratch := first / ".scratch-0123456789abcdef").mkdir()
    (first / ".lock").write_text(json.dumps({"pid": 1, "scratch": str(scratch)}))
    with pytest.raises(ResumeError, match="first_stage/"):
        train({**values, "out_dir": out_dir})
    assert not [*out_dir.rglob(".*")]


def test_merging_again_into_the_same_folder_keeps_the_first_stage(tmp_path: Path) -> None:
    from bpeflow.cli.merge import merge

    train({**corpus_in(tmp_path), "out_dir": tmp_path / "run"})
    first = {path: path.read_bytes() for path in (tmp_path / "run" / "first_stage").rglob("*.*")}
    merge(tmp_path / "run", None, {"vocab_size": 300, "out_dir": tmp_path / "run", "overwrite": True}, quiet=True)
    assert len(bpeflow.Tokenizer.load(tmp_path / "run").vocab) == 300
    assert {path: path.read_bytes() for path in (tmp_path / "run" / "first_stage").rglob("*.*")} == first
    train({"input": iter([TEXT]), "vocab_size": 300, "out_dir": tmp_path / "run", "overwrite": True})
    assert not (tmp_path / "run" / "first_stage").exists()


def test_a_run_in_a_folder_named_first_stage_is_not_replaced_without_overwrite(tmp_path: Path) -> None:
    train({"input": iter([TEXT]), "vocab_size": 300, "out_dir": tmp_path / "first_stage"})
    with pytest.raises(AlreadyExistsError, match=r"a finished run \(first_stage/run.json\)"):
        train({"input": iter([TEXT]), "vocab_size": 300, "out_dir": tmp_path})


def test_a_vocabulary_without_superwords_is_merged_from_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, less = tmp_path / "run", tmp_path / "less"
    train({**corpus_in(tmp_path), "out_dir": run})
    assert main(["merge", "--counts", str(run), "--vocab_size", "280"]) == 2
    assert "without superwords, are learned from the counts in first_stage" in capsys.readouterr().err
    assert main(["merge", "--counts", f"{run}/first_stage", "--out_dir", str(less), "--vocab_size", "280"]) == 0
    assert bpeflow.Tokenizer.load(less).vocab.tokens == bpeflow.Tokenizer.load(run).vocab.tokens[:280]


def test_merging_again_begins_with_the_first_stage_beside_the_counts(tmp_path: Path) -> None:
    from bpeflow.cli.merge import merge

    train({**corpus_in(tmp_path), "out_dir": tmp_path / "run"})
    merge(tmp_path / "run", None, {"vocab_size": 300, "out_dir": tmp_path / "less"}, quiet=True)
    vocab = bpeflow.Tokenizer.load(tmp_path / "run").vocab
    assert bpeflow.Tokenizer.load(tmp_path / "less").vocab.tokens == vocab.tokens[:300]
    extending = {"init_from": str(tmp_path / "less"), "vocab_size": 305, "out_dir": tmp_path / "more"}
    merge(tmp_path / "run", None, extending, quiet=True)
    assert bpeflow.Tokenizer.load(tmp_path / "more").vocab.tokens == vocab.tokens[:305]
    with pytest.raises(ConfigError, match="has 290 entries, not 300"):
        merge(tmp_path / "run", None, {"transition_size": 300, "out_dir": tmp_path / "other"}, quiet=True)
    with pytest.raises(ConfigError, match="these counts are of the pattern"):
        first = tmp_path / "run" / "first_stage"
        merge(first, None, {"superwords": True, "vocab_size": 400, "out_dir": tmp_path / "other"}, quiet=True)
    with pytest.raises(ConfigError, match="these counts are of the pattern"):
        merge(first, None, {**extending, "superwords": True, "init_from": str(first)}, quiet=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"transition_size": 400}, "not between 257"),
        ({"transition_size": 256}, "not between 257"),
        ({"skip_merge": True}, "skip_merge and superwords"),
        ({"input": "-"}, "standard input can be read only once, but a training with superwords"),
        ({"superwords": False, "max_words": 3}, "max_words: has no effect without superwords"),
        ({"superwords": False, "transition_size": 300}, "transition_size: has no effect without superwords"),
        ({"init_from": "x", "transition_size": 300}, "with init_from, superwords begin at that tokenizer's size"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    common = {"input": __file__, "superwords": True, "vocab_size": 400, "out_dir": tmp_path / "run"}
    with pytest.raises(BpeflowError, match=message):
        train({**common, **values})


def test_a_small_iterator_is_read_once_and_a_large_one_is_refused() -> None:
    from_list = learn([TEXT], vocab_size=330)
    values = {"superwords": True, "vocab_size": 330}
    assert train({"input": iter([TEXT]), **values}).merges == from_list.merges
    with pytest.raises(ConfigError, match="can be read only once"):
        rereadable(iter(["x" * 10] * 3), limit=29)
    documents = [{"text": "x" * 10}]
    assert rereadable(documents, limit=1) is documents
