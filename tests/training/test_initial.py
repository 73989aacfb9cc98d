"""Tokenizers to extend: extended, continued, and refused if they do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from real_data import real_data, real_text
from small_corpus import write_text

import bpeflow
from bpeflow.backends.base import MergeBackend
from bpeflow.cli.main import main
from bpeflow.errors import ConfigError, FormatError, ResumeError
from bpeflow.formats import any_format as formats
from bpeflow.formats import gpt2
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.vocab import Vocab

OTHER = "the other text<|endoftext|>that she wrote then<|endoftext|>" * 20


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_text(tmp_path)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return the run folder of a tokenizer with 270 entries, trained on another text."""
    (tmp_path / "other.txt").write_text(OTHER, encoding="utf-8")
    train(tmp_path / "other.txt", 270, out_dir=tmp_path / "first")
    return tmp_path / "first"


def train(corpus: Path, vocab_size: int, **settings: Any) -> bpeflow.TrainResult:
    return bpeflow.train({"input": str(corpus), "vocab_size": vocab_size, **settings})


def merges_of(folder: Path) -> tuple[tuple[bytes, bytes], ...]:
    return gpt2.load_files(folder / "vocab.json", folder / "merges.txt").merges


def test_a_tokenizer_is_extended(corpus: Path, first: Path, tmp_path: Path, backend: MergeBackend) -> None:
    result = train(corpus, 285, init_from=first, out_dir=tmp_path / "run", backend=backend.name)
    assert result.merges[:13] == merges_of(first)
    old, new = (json.loads((f / "vocab.json").read_text(encoding="utf-8")) for f in (first, tmp_path / "run"))
    assert old.items() <= new.items()
    assert len(new) == 285
    expected = bpeflow.learn_merges(result.counts, 285, ["<|endoftext|>"], initial_merges=merges_of(first))
    assert result.merges == expected.pairs
    report = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["init_from"] == str(first)
    assert (report["learning"]["replayed"], report["learning"]["learned"], report["learning"]["wanted"]) == (13, 15, 28)
    assert report["learning"]["lowest_count"] == expected.counts[-1]


def test_a_folder_in_gpt2s_format_is_enough(corpus: Path, first: Path) -> None:
    with_report = train(corpus, 285, init_from=first)
    (first / "run.json").unlink()
    (first / "counts.npz").unlink()
    assert train(corpus, 285, init_from=first).vocab == with_report.vocab


@pytest.mark.parametrize("tie_break", ["greatest_bytes", "smallest_ids", "huggingface"])
def test_a_longer_run_continues_a_shorter_one(
    corpus: Path, tmp_path: Path, tie_break: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"tie_break": tie_break, "special_tokens": ["<|endoftext|>", "lo", "the", "Ġt"]}
    at_once = train(corpus, 290, **settings)
    assert at_once.vocab is not None
    run = tmp_path / "run"
    train(corpus, 270, **settings, out_dir=run)
    assert main(["merge", "--counts", str(run), "--init_from", str(run), "--vocab_size", "290"]) == 0
    longer = tmp_path / "run-290"
    assert merges_of(longer) == at_once.merges
    replayed = json.loads((longer / "run.json").read_text(encoding="utf-8"))["learning"]["replayed"]
    assert f"{len(at_once.merges) - replayed} merges after {replayed} replayed" in capsys.readouterr().out
    assert main(["merge", "--counts", str(run), "--init_from", str(longer), "--vocab_size", "280"]) == 2
    complaint = f"vocab_size 280 is too small: the tokenizer to extend has {len(at_once.vocab)} entries"
    assert complaint in capsys.readouterr().err


def test_several_sizes_all_start_with_it(corpus: Path, first: Path, tmp_path: Path) -> None:
    bpeflow.train({"input": str(corpus), "vocab_sizes": [275, 285], "init_from": first, "out_dir": tmp_path / "run"})
    assert merges_of(tmp_path / "run" / "vocab_275") == merges_of(tmp_path / "run")[:18]
    with pytest.raises(ConfigError, match="vocab_size 267 is too small: the tokenizer to extend has 270 entries"):
        bpeflow.train({"input": str(corpus), "vocab_sizes": [267, 285], "init_from": first})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"pattern": "cl100k"}, "has the pattern 'gpt2', and here it is 'cl100k'"),
        ({"vocab_size": 260}, "vocab_size 260 is too small: the tokenizer to extend has 270 entries$"),
        (
            {"vocab_size": 271, "special_tokens": ["<a>", "<b>"]},
            r"vocab_size 271 is too small: the tokenizer to extend has 270 entries, and 2 new .* make 272",
        ),
    ],
    ids=str,
)
def test_a_tokenizer_that_does_not_fit_is_refused_before_any_work(
    corpus: Path, first: Path, tmp_path: Path, settings: dict[str, Any], complaint: str
) -> None:
    wanted = {"vocab_size": 290, "init_from": first, "out_dir": tmp_path / "run", **settings}
    with pytest.raises(ConfigError, match=complaint):
        train(corpus, **wanted)
    assert not (tmp_path / "run").exists()


def test_a_missing_tokenizer_is_reported_before_any_work(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="init_from: nowhere: no such file or folder"):
        train(corpus, 290, init_from="nowhere", out_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_counts_of_another_pattern_are_refused(
    corpus: Path, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train(corpus, 280, pattern="llama3", out_dir=run)
    assert main(["merge", "--counts", str(run), "--init_from", str(first)]) == 2
    assert "the pattern 'gpt2', and here it is 'llama3'" in capsys.readouterr().err
    bpeflow.PretokenCounts.load(run / "counts.npz").write(tmp_path / "alone.tsv")  # their pattern is unknown
    flags = ["--counts", str(tmp_path / "alone.tsv"), "--vocab_size", "290", "--out_dir", str(tmp_path / "more")]
    assert main(["merge", *flags, "--init_from", str(first)]) == 0
    assert json.loads((tmp_path / "more" / "bpeflow.json").read_text(encoding="utf-8"))["pattern"] == "gpt2"


def test_saved_counts_and_a_file_are_enough_for_several_sizes(corpus: Path, first: Path, tmp_path: Path) -> None:
    vocab = formats.load(first).vocab
    formats.save(TokenizerSpec(vocab, whole_tokens=True), tmp_path / "base", "huggingface")
    train(corpus, 260, special_tokens=["<pad>"], out_dir=tmp_path / "run")
    flags = ["--counts", str(tmp_path / "run"), "--init_from", str(tmp_path / "base" / "tokenizer.json")]
    assert main(["merge", *flags, "--set", "vocab_sizes=[271, 280]", "--out_dir", str(tmp_path / "more")]) == 0
    small, large = (formats.load(tmp_path / "more" / name) for name in ("vocab_271", ""))
    assert small.vocab.tokens == large.vocab.tokens[:271] == (*vocab.tokens, b"<pad>")
    assert (len(large.vocab), small.whole_tokens, large.whole_tokens) == (280, True, True)


def test_the_folder_of_the_tokenizer_cannot_be_the_run_folder(corpus: Path, first: Path) -> None:
    before = merges_of(first)
    for given in (first, first / "vocab.json"):
        with pytest.raises(ConfigError, match="give another out_dir"):
            train(corpus, 290, init_from=given, out_dir=first)
    assert merges_of(first) == before


def test_its_pattern_and_special_tokens_are_used(corpus: Path, tmp_path: Path) -> None:
    specials = ["<pad>", "<|endoftext|>"]
    train(corpus, 262, pattern="llama3", special_tokens=specials, out_dir=tmp_path / "first")
    result = train(corpus, 265, init_from=tmp_path / "first", out_dir=tmp_path / "run")
    assert (result.counts.pattern, result.tokenizer.pattern) == ("llama3", "llama3")
    assert result.tokenizer.special_tokens == {"<pad>": 256, "<|endoftext|>": 257}
    assert result.report.settings["pattern"] == "llama3"
    assert result.report.settings["special_tokens"] == ["<pad>", "<|endoftext|>"]
    assert result.report.corpus.documents == 40


def test_new_special_tokens_come_after_the_old_ids_and_before_new_merges(corpus: Path, first: Path) -> None:
    old = train(corpus, 270, init_from=first).vocab
    assert old is not None
    vocabs = [train(corpus, size, init_from=first, special_tokens=["<a>", "<b>"]).vocab for size in (272, 280)]
    for vocab in vocabs:
        assert vocab is not None
        assert vocab.tokens[:272] == (*old.tokens, b"<a>", b"<b>")
        assert vocab.special_tokens == {"<|endoftext|>": 256, "<a>": 270, "<b>": 271}


@pytest.mark.parametrize("given", [["<a>"], ["<a>", "<|endoftext|>"], ["</s>"]], ids=str)
def test_new_special_tokens_do_not_separate_documents(corpus: Path, first: Path, given: list[str]) -> None:
    assert train(corpus, 280, init_from=first, special_tokens=given).report.corpus.documents == 40
    result = train(corpus, 280, init_from=first, special_tokens=given, separator=given[0])
    assert result.report.corpus.documents == 1


def test_an_unchanged_setting_does_not_contradict_it(corpus: Path, first: Path) -> None:
    given = {"pattern": "gpt2", "unmatched": "isolate", "special_tokens": ["<|endoftext|>"]}
    assert train(corpus, 280, init_from=first, **given).vocab == train(corpus, 280, init_from=first).vocab
    custom = bpeflow.Tokenizer.train(corpus, 260, pattern=r"\w+", unmatched="drop")
    assert train(corpus, 262, init_from=custom).counts.unmatched == "drop"
    with pytest.raises(ConfigError, match="the unmatched 'drop', and here it is 'isolate'"):
        train(corpus, 262, init_from=custom, unmatched="isolate")


def test_the_counts_alone_are_made_with_its_pattern_too(corpus: Path, tmp_path: Path) -> None:
    train(corpus, 260, pattern="o200k", out_dir=tmp_path / "first")
    assert train(corpus, 280, init_from=tmp_path / "first", skip_merge=True).counts.pattern == "o200k"


def test_a_tokenizer_in_memory_is_extended(corpus: Path, first: Path, tmp_path: Path) -> None:
    tokenizer = bpeflow.Tokenizer.load(first)
    expected = train(corpus, 280, init_from=first).vocab
    run = tmp_path / "run"
    for given in (tokenizer, tokenizer.vocab):
        assert train(corpus, 280, init_from=given, out_dir=run, overwrite=True).vocab == expected
    assert bpeflow.train_bpe(str(corpus), 280, [], init_from=tokenizer)[0] == expected
    with pytest.raises(ConfigError, match="init_from was a tokenizer in memory"):
        bpeflow.train({"out_dir": run, "resume": True})
    assert bpeflow.train({"out_dir": run, "resume": True, "init_from": tokenizer}).vocab == expected


def test_resuming_depends_on_its_content_and_not_on_its_place(corpus: Path, first: Path, tmp_path: Path) -> None:
    run = {"out_dir": tmp_path / "run", "resume": True}
    result = train(corpus, 280, init_from=first, out_dir=tmp_path / "run")
    shutil.copytree(first, tmp_path / "copy")
    assert train(corpus, 280, init_from=tmp_path / "copy", **run).vocab == result.vocab
    train(corpus, 265, out_dir=first, overwrite=True)
    with pytest.raises(ResumeError, match="init_from: 'a tokenizer with 270 entries, SHA-256"):
        train(corpus, 280, init_from=first, **run)


def test_a_pattern_may_be_given_for_a_format_without_one(corpus: Path, tmp_path: Path) -> None:
    spec = TokenizerSpec(Vocab.build([(b"t", b"h")], ["<s>"]), "cl100k")
    formats.save(spec, tmp_path / "gpt2", "gpt2")
    (tmp_path / "gpt2" / "bpeflow.json").unlink()
    assert train(corpus, 260, init_from=tmp_path / "gpt2").counts.pattern == "gpt2"
    assert train(corpus, 260, init_from=tmp_path / "gpt2", pattern="cl100k").counts.pattern == "cl100k"


def test_a_vocabulary_without_a_pattern_takes_the_one_given(corpus: Path) -> None:
    vocab = Vocab.build([(b"t", b"h")], ["<|endoftext|>"])
    assert train(corpus, 260, init_from=vocab).counts.pattern == "gpt2"
    assert train(corpus, 260, init_from=vocab, pattern="o200k").tokenizer.pattern == "o200k"


def test_merges_out_of_order_are_refused(corpus: Path) -> None:
    vocab = Vocab((*(bytes([b]) for b in range(256)), b"the", b"th"), {}, ((b"th", b"e"), (b"t", b"h")))
    with pytest.raises(ConfigError, match=r"initial merge 0, b'th' b'e': a later merge makes b'th'"):
        train(corpus, 280, init_from=vocab)


@pytest.mark.slow
def test_gpt2_as_it_was_published_is_extended(tmp_path: Path) -> None:
    """All of its merges, on a text that contains few of them."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    shutil.copy(real_data("vocabs/gpt2.encoder.json"), folder / "vocab.json")
    shutil.copy(real_data("vocabs/gpt2.vocab.bpe"), folder / "merges.txt")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(real_text("wikitext2_2MB"))
    result = train(corpus, 50_300, init_from=folder)
    assert result.vocab is not None
    assert len(result.vocab) == 50_300
    assert result.merges[:50_000] == merges_of(folder)
    assert result.learned is not None
    assert result.learned.counts[:50_000].count(0) == 50_000
    assert min(result.learned.counts[50_000:]) > 0
