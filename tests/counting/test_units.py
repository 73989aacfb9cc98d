"""Counting cells of pairs, and fragments: the native tables count what the definition does, however they are fed."""

from __future__ import annotations

import pickle
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from available import skip_missing
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_cut import cell_of, count_cells, cut_words
from naive_extension import encode_words

import bpeflow
from bpeflow._util.native import Handle, load_library
from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.merger import kway_sum
from bpeflow.counting.shards import PARTITIONS
from bpeflow.counting.table import NativeTable
from bpeflow.counting.units import Units, frequent_cells
from bpeflow.errors import NativeError
from bpeflow.formats.tokenizer_spec import TokenizerSpec
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer
from bpeflow.vocab import Vocab

PATTERN = "superbpe"

_parts = st.sampled_from(
    ["a", "b", "ab", "aa", " ", "   ", ": ", "a b", "\n", "12", "--", "é ", "of the ", "the ", "日本"]
)
texts = st.lists(st.lists(_parts, max_size=40).map("".join), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def native() -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))


def base_of(text: str, size: int, whole: list[bytes] | None = None) -> TokenizerSpec:
    """Return a first stage, with tokens that only whole pre-tokens become, if `whole` has any."""
    vocab = bpeflow.Tokenizer.train([text.encode()], size, special_tokens=()).vocab
    if whole:
        extra = [token for token in dict.fromkeys(whole) if token not in vocab.tokens]
        vocab = Vocab([*vocab.tokens, *extra], {}, vocab.merges)
    return TokenizerSpec(vocab, PATTERN, whole_tokens=whole is not None)


def corpus_of(documents: list[str], **options: Any) -> CorpusCounter:
    values = {"input": "-", "pattern": PATTERN, "unmatched": "isolate", **options}
    return CorpusCounter(make_settings(CountSettings, values), documents=documents)


def check(base: TokenizerSpec, corpus: CorpusCounter, most: int) -> None:
    """Compare both passes with the definition."""
    words = dict(corpus.count().counts.items())
    cells = corpus.with_units(Units(base)).count(may_be_empty=True).counts
    encoded = encode_words(base, words)
    expected = count_cells(base, words, encoded)
    assert dict(cells.items()) == {cell.to_bytes(4, "big"): count for cell, count in expected.items()}
    if not expected:
        return
    frequent, lowest = frequent_cells(cells, most, 1)
    named = set(frequent.tolist())
    assert named == {cell for cell, count in expected.items() if count >= lowest}
    assert len(named) >= min(most, len(expected))
    units = pickle.loads(pickle.dumps(Units(base, frequent)))
    assert dict(corpus.with_units(units).count(may_be_empty=True).counts.items()) == cut_words(
        base, words, encoded, named
    )


@settings(max_examples=60)
@given(documents=texts, size=st.integers(256, 290), most=st.integers(1, 60), whole=st.booleans(), data=st.data())
def test_cells_and_fragments_are_those_of_the_definition(
    documents: list[str], size: int, most: int, whole: bool, data: st.DataObject
) -> None:
    if not any(documents):
        return
    ordinary = data.draw(st.lists(_parts.map(str.encode), max_size=4)) if whole else None
    check(base_of("".join(documents), size, ordinary), corpus_of([d for d in documents if d]), most)


@pytest.mark.parametrize(
    "text",
    ["a" * 9000, "ab" * 4000, " " * 9000, "a b" * 3000, "日本語" * 1000, "x. " * 3000, "--" * 4500 + "a"],
    ids=lambda text: text[:6],
)
def test_long_chunks_take_several_look_ups(text: str) -> None:
    for size in (256, 260):
        check(base_of(text[:3000], size), corpus_of([text, text[:-1]]), 2)


def test_pairs_with_the_same_hash_are_counted_together() -> None:
    rng = random.Random(5)
    base = base_of(" ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(2000)), 1500)
    letters = [(number, token) for number, token in enumerate(base.vocab.decoded_tokens) if token.isalpha()]
    words: dict[int, list[bytes]] = {}
    for (left, first), (right, second) in product(letters[:200], letters):
        words.setdefault(cell_of(left, right), []).append(first + second)
    units = encode_words(base, {word: 1 for same in words.values() if len(same) == 2 for word in same})
    one, two = next(same for same in words.values() if len(same) == 2 and all(len(units[word]) == 2 for word in same))
    corpus = corpus_of([one.decode()] * 3 + [two.decode()] * 2)
    assert corpus.with_units(Units(base)).count(may_be_empty=True).counts.counts.tolist() == [5]
    check(base, corpus, 1)


@pytest.mark.large
def test_cells_of_more_than_32_bits() -> None:
    text, times = b"ab" * 4_000_000, 550
    table = NativeTable(PATTERN, units=Units(base_of("a", 256)))
    for _ in range(times):
        table.count(text)
    shard = table.shard()
    counts = kway_sum([shard.select(range(number, number + 1)) for number in range(PARTITIONS)], 1 << 16).counts()
    assert sorted(counts.counts.tolist()) == [3_999_999 * times, 4_000_000 * times]
    assert 8_000_000 * times > 2**32


def test_random_text_of_many_chunks() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdé日", k=rng.randint(1, 5))) for _ in range(300)]
    documents = [" ".join(rng.choices(words, k=rng.randint(1, 3000))).replace(" a", "... ") for _ in range(20)]
    check(base_of("".join(documents[:3]), 400), corpus_of(documents), rng.choice([1, 50, 500]))


@pytest.mark.not_sanitized  # most of it is the definition
@pytest.mark.parametrize(
    "options",
    [
        {"executor": "processes", "chunk_size": "64kb", "num_counter": 2, "num_merger": 2},
        {"executor": "threads", "chunk_size": "64kb", "num_counter": 3},
        {"executor": "processes", "chunk_size": "64kb", "memory_limit": "16mb", "num_counter": 8},
        {"sources": [{"paths": ["CORPUS"], "weight": 3, "name": "three"}]},
        {"normalizer": "nfkc"},
    ],
    ids=str,
)
def test_counts_do_not_depend_on_how_the_corpus_is_read(options: dict[str, Any], tmp_path: Path) -> None:
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefgh\u00e9\u212b", k=rng.randint(1, 6))) for _ in range(3000)]
    path = tmp_path / "corpus.txt"
    path.write_text(" ".join(rng.choices(words, k=40_000)))
    base = base_of(path.read_text()[:20_000], 500)
    values: dict[str, Any] = {"input": str(path), "pattern": PATTERN, "unmatched": "isolate"} | options
    if "sources" in values:
        values["sources"] = [{**source, "paths": [str(path)]} for source in values["sources"]]
        del values["input"]
    check(base, CorpusCounter(make_settings(CountSettings, values), scratch_in=tmp_path), 1500)
    assert [*tmp_path.iterdir()] == [path]


def test_a_vocabulary_whose_merges_do_not_yield_their_parts_is_refused() -> None:
    base = base_of("abab", 258)
    vocabulary = base.native(len(base.vocab.merges))
    lengths = np.diff(vocabulary.kept[1].offsets)
    lengths[vocabulary.kept[3][0, 2]] += 5
    vocabulary.kept[1].offsets[1:] = np.cumsum(lengths)
    vocabulary.ordinary_data = vocabulary.kept[1].data + b"12345"
    units = Units(base)
    units.__dict__["handle"] = Handle(load_library("count"), "units", vocabulary, None, 0)
    table = NativeTable(PATTERN, units=units)
    with pytest.raises(NativeError, match="break the rules"):
        table.count(b"ab")
