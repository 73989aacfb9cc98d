"""The pattern travels with counts, merges and vocabularies to the tokenizer, in memory and in files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bpeflow
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError, CorpusError, ResumeError
from bpeflow.run_dir.run_files import read_report

DOCUMENTS = ["low, lower, lowest!", "low lower; 12 low"] * 5
WORDS = r"\p{L}+"


def train(out: Path | None = None, **options: object) -> bpeflow.TrainResult:
    return bpeflow.train({"input": iter(DOCUMENTS), "vocab_size": 265, "out_dir": out, "pattern": WORDS, **options})


@pytest.mark.parametrize("unmatched", ["isolate", "drop"])
def test_a_trained_vocabulary_knows_its_pattern(unmatched: str, tmp_path: Path) -> None:
    result = train(tmp_path / "run", unmatched=unmatched)
    assert result.vocab is not None
    assert (result.vocab.pattern, result.vocab.unmatched) == (WORDS, unmatched)
    tokenizers = [
        result.tokenizer,
        bpeflow.Tokenizer(result.vocab, result.merges),
        bpeflow.Tokenizer.load(tmp_path / "run"),
        bpeflow.Tokenizer.train(iter(DOCUMENTS), 265, pattern=WORDS, unmatched=unmatched),
        bpeflow.Tokenizer.from_files(tmp_path / "run" / "vocab.json", tmp_path / "run" / "merges.txt"),
    ]
    for tokenizer in tokenizers:
        assert type(tokenizer) is bpeflow.Tokenizer
        assert tokenizer.to_spec() == result.tokenizer.to_spec()
        assert tokenizer.decode(tokenizer.encode("low, low")) == ("low, low" if unmatched == "isolate" else "lowlow")


def test_there_is_no_tokenizer_without_merges() -> None:
    with pytest.raises(ConfigError, match="skip_merge leaves no vocabulary for a tokenizer"):
        _ = train(skip_merge=True).tokenizer
    with pytest.raises(ConfigError, match="skip_merge leaves no vocabulary for a tokenizer"):
        bpeflow.Tokenizer.train(iter(DOCUMENTS), 265, skip_merge=True)


def test_learned_merges_know_the_pattern_of_their_counts() -> None:
    counts = bpeflow.count(iter(DOCUMENTS), WORDS, ["<s>"], unmatched="drop")
    learned = bpeflow.learn_merges(counts, 262, ["<s>"])
    tokenizer = learned.tokenizer()
    assert (tokenizer.pattern, tokenizer.unmatched, tokenizer.special_tokens) == (WORDS, "drop", {"<s>": 256})
    assert tokenizer.merges == learned.pairs
    other = learned.tokenizer(["<a>", "<b>"], pattern="o200k", special_tokens_first=True)
    assert (other.pattern, other.unmatched, other.special_tokens) == ("o200k", "isolate", {"<a>": 0, "<b>": 1})
    assert learned.tokenizer(unmatched="isolate").unmatched == "isolate"
    unknown = bpeflow.learn_merges({"low": 5, "lower": 2}, 260, ()).tokenizer()
    assert (unknown.pattern, unknown.encode("low")) == ("gpt2", [257])


def test_huggingface_merges_share_ids_with_special_tokens() -> None:
    learned = bpeflow.learn_merges({"low": 5}, 259, ["lo"], tie_break="huggingface")
    tokenizer = learned.tokenizer(special_tokens_first=True)
    assert len(tokenizer.vocab) == len(set(tokenizer.vocab.tokens))


def test_a_plain_dictionary_has_the_pattern_of_cs336() -> None:
    vocab, merges = bpeflow.train_bpe(iter(DOCUMENTS), 260, ["<s>"], pattern=WORDS)
    assert bpeflow.Tokenizer(vocab, merges, ["<s>"]).pattern == "gpt2"


@settings(max_examples=15)
@given(pattern=st.sampled_from([WORDS, r"\s", "(?=[A-Z])", r"(l)o|\d*"]), text=st.text(max_size=20))
def test_a_trained_tokenizer_loses_no_text(pattern: str, text: str) -> None:
    tokenizer = train(pattern=pattern, backend="python").tokenizer
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_dropped_text_is_warned_of_before_merging(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    learning: list[int] = []

    class Recorder(bpeflow.Observer):
        def learning(self, learned: int, wanted: int) -> None:
            learning.append(len([r for r in caplog.records if "is matched by nothing and dropped" in r.getMessage()]))

    settings = {"input": iter(DOCUMENTS), "vocab_size": 260, "pattern": WORDS, "unmatched": "drop", "out_dir": tmp_path}
    with caplog.at_level(logging.WARNING):
        result = bpeflow.train(settings, Recorder())
    assert set(learning) == {1}
    assert result.report.corpus is not None
    assert result.report.corpus.unmatched_bytes == 55
    assert read_report(tmp_path) == result.report


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not match ', ' in 'low, lower"):
        train(tmp_path / "run", unmatched="error")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_of_another_policy_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ab, cd", encoding="utf-8")
    settings = {"input": tmp_path / "text", "vocab_size": 258, "pattern": WORDS, "out_dir": tmp_path / "run"}
    first = bpeflow.train(settings)
    again = bpeflow.train({**settings, "resume": True})
    assert again.vocab is not None
    assert (again.vocab, again.vocab.pattern, again.vocab.unmatched) == (first.vocab, WORDS, "isolate")
    with pytest.raises(ResumeError, match="unmatched: 'isolate' → 'drop'"):
        bpeflow.train({**settings, "resume": True, "unmatched": "drop"})


def test_formats_that_cannot_represent_an_error_are_refused_before_counting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.formats: huggingface: tokenizer\.json: .* cannot refuse text"):
        train(tmp_path, unmatched="error", output={"formats": ["huggingface"]})


def test_merging_again_keeps_the_pattern_of_the_counts(tmp_path: Path) -> None:
    bpeflow.count(iter(DOCUMENTS), WORDS, unmatched="drop").save(tmp_path / "counts.npz")
    counts, out = str(tmp_path / "counts.npz"), str(tmp_path / "run")
    assert main(["merge", "--counts", counts, "--vocab_size", "262", "--out_dir", out, "--quiet"]) == 0
    tokenizer = bpeflow.Tokenizer.load(out)
    assert (tokenizer.pattern, tokenizer.unmatched) == (WORDS, "drop")


def test_encoding_a_file_names_the_position_of_unmatched_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("low<|endoftext|>é, low", encoding="utf-8")
    tokenizer = bpeflow.Tokenizer(train().vocab, train().merges, unmatched="error")  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match=rf"^{tmp_path}/text: .* does not match ', ' in 'é, low', at byte 18;"):
        tokenizer.encode_file(tmp_path / "text", tmp_path / "ids.bin")
