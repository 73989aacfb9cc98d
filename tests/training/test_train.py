"""Training: the sequence of steps, the results of the public functions, the content of a run folder."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from real_data import real_text_start
from small_corpus import TEXT, write_text

import bpeflow
from bpeflow._util.byte_level import from_printable
from bpeflow.backends.base import MergeBackend
from bpeflow.config import Settings, make_settings
from bpeflow.counting.counts import PretokenCounts
from bpeflow.errors import ConfigError, CorpusError
from bpeflow.formats import gpt2
from bpeflow.progress import Observer
from bpeflow.run_dir.resume import SavedCounts
from bpeflow.run_dir.run_files import read_report
from bpeflow.training.train import train, train_from_counts


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_text(tmp_path)


def test_train_bpe_returns_what_cs336_asks_for(corpus: Path) -> None:
    vocab, merges = bpeflow.train_bpe(corpus, 280, ["<|endoftext|>"])
    assert len(vocab) == 280
    assert set(vocab) == set(range(280))
    assert b"<|endoftext|>" in vocab.values()
    assert len(merges) == 280 - 257
    assert all(isinstance(left, bytes) and isinstance(right, bytes) for left, right in merges)
    assert all(left + right in vocab.values() for left, right in merges)
    assert not any(b"<|" in left + right for left, right in merges)


def test_train_bpe_without_special_tokens_takes_them_for_text(corpus: Path) -> None:
    _, merges = bpeflow.train_bpe(corpus, 300, [])
    assert any(b"endoftext".find(left + right) >= 0 and len(left + right) > 4 for left, right in merges)


def test_ties_go_to_the_greater_pair_of_bytes() -> None:
    # The example of Sennrich et al. as given in CS336.
    words = {"low": 5, "lower": 2, "widest": 3, "newest": 6}
    learned = bpeflow.learn_merges(words, vocab_size=262, special_tokens=())
    assert learned.pairs == (
        (b"s", b"t"),
        (b"e", b"st"),
        (b"o", b"w"),
        (b"l", b"ow"),
        (b"w", b"est"),
        (b"n", b"e"),
    )
    assert learned.counts == (9, 9, 7, 7, 6, 6)


def test_all_ways_to_train_agree(corpus: Path, backend: MergeBackend) -> None:
    vocab, merges = bpeflow.train_bpe(
        corpus, 300, ["<|endoftext|>"], backend=backend.name, num_counter=2, executor="processes"
    )
    counts = bpeflow.count(corpus, special_tokens=["<|endoftext|>"])
    learned = bpeflow.learn_merges(counts, 300, ["<|endoftext|>"], backend=backend.name)
    result = bpeflow.train({"input": str(corpus), "vocab_size": 300, "backend": backend.name})
    assert list(learned) == list(result.merges) == merges
    assert result.vocab is not None
    assert result.vocab.to_dict() == vocab
    assert learned.backend == backend.name


def test_the_run_folder_has_everything(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = bpeflow.train(
        {"input": str(corpus), "vocab_size": 280, "out_dir": out, "num_counter": 2, "executor": "processes"}
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "bpeflow.json",
        "counts.npz",
        "merges.txt",
        "run.json",
        "vocab.json",
    ]
    assert gpt2.load_files(out / "vocab.json", out / "merges.txt") == result.vocab
    assert bpeflow.PretokenCounts.load(out / "counts.npz") == result.counts
    report = read_report(out)
    assert report == result.report
    assert report is not None
    assert report.settings["vocab_size"] == 280
    assert (corpus_report := report.corpus) is not None
    assert corpus_report.unicode
    assert (corpus_report.instructions is not None) == (corpus_report.scanner == "native")
    assert corpus_report.bytes == len(TEXT)
    assert corpus_report.documents == 40
    assert corpus_report.pretokens == result.counts.total
    assert report.counting is not None
    assert not report.counting.in_process
    stages = report.counting.stages
    assert list(stages) == ["chunk reader", "counter", "merger", "reducer"]
    assert stages["counter"].bytes == len(TEXT)
    assert all((stages[stage].mb_per_second or 0) > 0 for stage in ("chunk reader", "counter", "merger", "reducer"))
    assert report.learning is not None
    assert report.learning.learned == 23
    assert report.learning.backend.positions > 0
    assert report.learning.longest_token.bytes == len(result.vocab.longest_token)
    assert (report.peak_memory_bytes or 0) > 1e6
    assert report.files == ("counts.npz", "vocab.json", "merges.txt", "bpeflow.json")


def test_several_sizes_come_from_one_run(corpus: Path, tmp_path: Path) -> None:
    bpeflow.train({"input": str(corpus), "vocab_sizes": [285, 260, 275], "out_dir": tmp_path / "run"})
    for size, folder in ((260, "run/vocab_260"), (275, "run/vocab_275"), (285, "run")):
        loaded = gpt2.load_files(tmp_path / folder / "vocab.json", tmp_path / folder / "merges.txt")
        assert len(loaded) == size
        assert loaded.to_dict() == bpeflow.train_bpe(corpus, size, ["<|endoftext|>"])[0]


def test_skip_merge_stops_after_the_counts(corpus: Path, tmp_path: Path) -> None:
    result = bpeflow.train({"input": str(corpus), "skip_merge": True, "out_dir": tmp_path / "run"})
    assert result.vocab is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["counts.npz", "run.json"]


def test_nothing_is_written_without_a_folder(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bpeflow.train({"input": str(corpus), "vocab_size": 280, "monitor": {"enabled": True}})
    assert list(tmp_path.iterdir()) == [corpus]


def test_the_monitor_writes_samples(corpus: Path, tmp_path: Path) -> None:
    heard = []

    class Listener(Observer):
        def monitored(self, sample: object) -> None:
            heard.append(sample)

    monitor = {"enabled": True, "interval": 0.05}
    bpeflow.train(
        {"input": str(corpus), "vocab_size": 280, "out_dir": tmp_path / "run", "monitor": monitor}, Listener()
    )
    lines = (tmp_path / "run" / "monitor.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(heard) >= 1
    assert set(json.loads(lines[-1])["queues"]) == {"chunk_queue", "counter_queue", "merged_queue"}


def test_fewer_merges_than_asked_are_reported_not_an_error(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = bpeflow.train({"input": str(corpus), "vocab_size": 100_000})
    assert len(result.vocab) < 100_000
    assert "not 100,000: no more pairs could be merged" in caplog.text
    assert result.report.learning.wanted == 100_000 - 257


def test_a_vocabulary_without_room_for_merges_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    base = bpeflow.train({"input": iter(["low low"]), "vocab_size": 258}).tokenizer
    assert not caplog.records
    for values in ({"vocab_size": 257}, {"vocab_size": 258, "init_from": base}):
        caplog.clear()
        bpeflow.train({"input": iter(["low low"]), **values})
        [message] = caplog.messages
        assert message == f"no merges: vocab_size {values['vocab_size']} leaves no room for any"


def test_min_frequency_and_max_token_length_are_kept(corpus: Path) -> None:
    counts = bpeflow.count(corpus, special_tokens=["<|endoftext|>"])
    frequent = bpeflow.learn_merges(counts, 1000, min_frequency=40)
    assert min(frequent.counts) >= 40
    short = bpeflow.learn_merges(counts, 1000, max_token_length=3)
    assert max(len(left + right) for left, right in short) == 3


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"input": "missing.txt"}, CorpusError),
        ({"pattern": "gtp2"}, ConfigError),
        ({"backend": "fortran"}, ConfigError),
        ({"vocab_size": 256}, ConfigError),
    ],
    ids=str,
)
def test_errors_are_found_before_anything_is_written(
    corpus: Path, tmp_path: Path, values: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        bpeflow.train({"input": str(corpus), "vocab_size": 280, "out_dir": tmp_path / "run", **values})
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_an_error(corpus: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make the run folder"):
        bpeflow.train({"input": str(corpus), "vocab_size": 280, "out_dir": corpus / "run"})


def test_learn_merges_refuses_unknown_options_and_small_sizes() -> None:
    with pytest.raises(ConfigError, match="did you mean tie_break"):
        bpeflow.learn_merges({"a": 1}, 300, tie_breaks="huggingface")
    with pytest.raises(ConfigError, match="too small"):
        bpeflow.learn_merges({"a": 1}, 257, ["<a>", "<b>"])


SCRIPT = """
import bpeflow
options = dict(executor="processes", num_counter=2)
vocab, merges = bpeflow.train_bpe({path!r}, 270, ["<|endoftext|>"], **options)
print(len(vocab), len(merges))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", "stdin", "-c"])
def test_a_plain_script_needs_no_main_guard(corpus: Path, tmp_path: Path, how: str) -> None:
    code = SCRIPT.format(path=str(corpus))
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    arguments = {"script": [str(script)], "stdin": ["-"], "-c": ["-c", code]}[how]
    done = subprocess.run(
        [sys.executable, *arguments], input=code, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("270 13\n", "")


@cache
def huggingface_merges(text: str, vocab_size: int, special_tokens: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Return the merges that HuggingFace's BpeTrainer learns from the documents of a text."""
    tokenizers = pytest.importorskip("tokenizers", reason="HuggingFace tokenizers is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.split("<|endoftext|>"), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(from_printable(left), from_printable(right)) for left, right in merges]


@pytest.mark.slow
@pytest.mark.parametrize(
    "special_tokens", [["<|endoftext|>"], ["<|endoftext|>", "the", "Ġof", "in", "a", "ing"]], ids=len
)
def test_huggingface_mode_equals_its_trainer(tmp_path: Path, backend: MergeBackend, special_tokens: list[str]) -> None:
    """On real text, where thousands of merges are tied, with special tokens that merges also make."""
    text = real_text_start("wikitext2_2MB", 700_000)
    (tmp_path / "text").write_text(text, encoding="utf-8", newline="")
    counts = bpeflow.count(tmp_path / "text", separator="<|endoftext|>")
    learned = bpeflow.learn_merges(counts, 4000, special_tokens, tie_break="huggingface", backend=backend.name)
    assert list(learned.pairs) == huggingface_merges(text, 4000, tuple(special_tokens))


@pytest.mark.parametrize("content", [b"", b"<|endoftext|>" * 1000])
def test_nothing_to_count_is_an_error_that_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus").write_bytes(content)
    settings = {"input": str(tmp_path / "corpus"), "vocab_size": 300, "out_dir": tmp_path / "run", "segment_size": 1000}
    with pytest.raises(CorpusError, match="nothing to count: "):
        train(settings)
    assert not (tmp_path / "run").exists()


def test_nothing_to_learn_from_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    settings = make_settings(Settings, {"input": "unused", "vocab_size": 300, "out_dir": tmp_path / "run"})
    with pytest.raises(ConfigError, match=r"a\.tsv: no pre-tokens, so there is nothing to learn from"):
        train_from_counts(SavedCounts(PretokenCounts.from_items([]), Path("a.tsv"), None), settings, Observer())
    assert not (tmp_path / "run").exists()


def test_counts_that_are_durable_take_no_memory_after_learning(corpus: Path, tmp_path: Path) -> None:
    values = {"input": corpus, "vocab_size": 280, "out_dir": tmp_path / "run"}
    with_folder, without = train(values), train({"input": corpus, "vocab_size": 280})
    assert with_folder.counts._arrays is None
    corpus.write_text("another corpus")
    train({**values, "vocab_size": 257, "overwrite": True})
    assert with_folder.counts == without.counts
