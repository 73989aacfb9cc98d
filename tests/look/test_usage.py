"""Figures about a corpus are those of encoding it, with the vocabulary and with each prefix of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive_extension import encode_words
from real_data import real_text_start
from tasks import words

from bpeflow import PretokenCounts, Tokenizer, count
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.look import usage as corpus_module
from bpeflow.look.usage import count_pretokens, inspect_corpus, token_occurrences, tokens_of_prefixes
from bpeflow.tokenizer import parallel
from bpeflow.vocab import Vocab

TEXT = "low lower lowest newest widest, the thing they think; 日本 日本語\n\n" * 3 + "thither<|endoftext|>then"


def ordinary_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    specials = set(tokenizer.special_tokens.values())
    return [i for i in tokenizer.encode(text) if i not in specials]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return Tokenizer.train(iter([TEXT]), vocab_size=290, pattern="cl100k")


@pytest.mark.parametrize("options", [{}, {"normalizer": "nfd"}, {"pattern": r"[a-z]+|\s", "unmatched": "drop"}])
def test_occurrences_are_those_of_encode(trained: Tokenizer, options: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = Tokenizer(trained.vocab, trained.merges, **options)
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    figures = inspect_corpus(tokenizer, count_pretokens(tokenizer, [str(path)]))
    expected = Counter(ordinary_ids(tokenizer, TEXT))
    assert {token.id: token.count for token in figures.used} == expected
    assert figures.tokens == sum(expected.values())
    assert [token.count for token in figures.used] == sorted(expected.values(), reverse=True)
    assert {token.id for token in figures.used} | {token.id for token in figures.unused} == set(range(290)) - {256}


def test_sources_of_a_config_are_counted_once(
    trained: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        (tmp_path / name).write_text("low")
    inputs = [str(tmp_path / "a"), {"paths": str(tmp_path / "b"), "weight": 0.5, "name": "b"}]
    with caplog.at_level("INFO"):
        assert dict(count_pretokens(trained, inputs)) == {b"low": 2}
    assert caplog.messages == ["weights are ignored, as each document counts once: b (0.5)"]


def prefix_of(tokenizer: Tokenizer, merges: int) -> Tokenizer:
    """Return the tokenizer of the first merges, with the same special tokens."""
    specials = [*tokenizer.special_tokens]
    vocab = Vocab.build(tokenizer.merges[:merges], specials)
    return Tokenizer(vocab, vocab.merges, pattern=tokenizer.pattern)


def test_prefixes_yield_what_tokenizers_of_that_size_do(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_FIRST_SIZE", 17)  # 17 << 4 is 272
    counts = count(iter([TEXT]), "cl100k", ["<|endoftext|>"])
    prefixes = inspect_corpus(trained, counts).prefixes
    assert [(prefix.entries, prefix.merges) for prefix in prefixes] == [(257, 0), (272, 15), (290, 33)]
    for prefix in prefixes:
        smaller = prefix_of(trained, prefix.merges)
        assert smaller.vocab_size == prefix.entries
        assert prefix.tokens == len(ordinary_ids(smaller, TEXT))
        assert prefix.bytes_per_token == counts.total_bytes / prefix.tokens


@pytest.mark.slow
@settings(max_examples=150)
@given(words=words(), joined=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_prefixes_of_any_merges_yield_what_their_tokenizers_do(
    words: dict[bytes, int], joined: list[tuple[int, int]]
) -> None:
    """Some merges make their tokens in no text."""
    known, merges = [b"a", b"b", b"c"], []
    for left, right in joined:
        merges.append((known[left % len(known)], known[right % len(known)]))
        known.append(b"".join(merges[-1]))
    specs = [TokenizerSpec(Vocab.build(merges[:n], reuse_tokens=True)) for n in range(len(merges) + 1)]
    tokenizer = Tokenizer.from_spec(specs[-1])
    found = tokens_of_prefixes(tokenizer, token_occurrences(tokenizer, PretokenCounts.from_mapping(words)))
    assert (found is None) == (len({*known}) < len(known))
    assume(found is not None)
    entries, tokens = found
    assert entries.tolist() == [len(spec.vocab) for spec in specs]
    pieces = [encode_words(spec, words) for spec in specs]
    assert tokens.tolist() == [sum(count * len(each[word]) for word, count in words.items()) for each in pieces]


def test_whole_tokens_have_no_prefixes(trained: Tokenizer) -> None:
    tokenizer = Tokenizer(trained.vocab, trained.merges, whole_tokens=True)
    assert inspect_corpus(tokenizer, PretokenCounts.from_mapping({"low": 1})).prefixes == ()


def test_merges_before_their_parts_have_no_prefixes() -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"abc", 257: b"ab"}
    tokenizer = Tokenizer(vocab, [(b"ab", b"c"), (b"a", b"b")])
    figures = inspect_corpus(tokenizer, PretokenCounts.from_mapping({"abc": 1}))
    assert (figures.tokens, figures.prefixes) == (1, ())


def test_batches_add_up(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count(iter([TEXT]), "cl100k")
    whole = token_occurrences(trained, counts)
    monkeypatch.setattr(parallel, "_BATCH", 3)
    assert token_occurrences(trained, counts).tolist() == whole.tolist()


@pytest.mark.slow
def test_prefixes_of_real_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = real_text_start("multilingual_20MB", 200_000)
    tokenizer = Tokenizer.train(iter([text]), vocab_size=3000)
    prefixes = inspect_corpus(tokenizer, count(iter([text]), special_tokens=["<|endoftext|>"])).prefixes
    assert [prefix.entries for prefix in prefixes] == [257, 1024, 2048, 3000]
    for prefix in prefixes:
        assert prefix.tokens == len(ordinary_ids(prefix_of(tokenizer, prefix.merges), text))
