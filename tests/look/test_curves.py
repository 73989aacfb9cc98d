"""The figures behind the charts."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import bpeflow
from bpeflow.look.charts import (
    enough_size,
    expected_growth,
    merge_count_curve,
    spread,
    token_lengths,
)
from bpeflow.look.usage import prefixes

WORDS = ("low", "lower", "lowest", "newer", "new", "wide", "wider", "there", "their", "other", "mother")


def text_of(seed: int) -> str:
    choose = Random(seed)
    return " ".join(choose.choice(WORDS) + choose.choice(["", "s", "ly", "aaaaa", "東京"]) for _ in range(300))


@pytest.mark.parametrize("tie_break", ["greatest_bytes", "smallest_ids"])
@pytest.mark.parametrize("seed", range(3))
def test_bytes_per_token_are_those_of_each_prefix_of_the_vocabulary(seed: int, tie_break: str) -> None:
    text = text_of(seed)
    learned = bpeflow.learn_merges(bpeflow.count(iter([text_of(seed + 10)])), 340, ["<s>"], tie_break=tie_break)
    occurrences = np.bincount(learned.tokenizer().encode(text), minlength=len(learned.vocab()))
    found = prefixes(learned.tokenizer(), occurrences, len(text.encode()), spread)
    assert (found[0].entries, found[-1].entries) == (257, len(learned.vocab())) and len(found) > 40
    for prefix in found:
        smaller = bpeflow.Tokenizer(learned.vocab(max_tokens=prefix.entries), learned.pairs[: prefix.merges])
        assert prefix.bytes_per_token == len(text.encode()) / len(smaller.encode(text)), prefix.entries


def test_growth_in_random_order() -> None:
    counts = np.array([50, 20, 5, 2, 1, 1, 1], np.int64)
    sizes, distinct = expected_growth(counts)
    assert (sizes[0], sizes[-1], distinct[-1]) == (1, 80, 7)
    assert distinct == sorted(distinct)
    corpus = np.repeat(np.arange(7), counts)
    generator = np.random.default_rng(0)
    drawn = np.mean([len(set(generator.permutation(corpus)[:40].tolist())) for _ in range(2000)])
    assert np.interp(40, sizes, distinct) == pytest.approx(drawn, rel=0.03)


def test_merge_counts_without_those_that_are_unknown() -> None:
    assert merge_count_curve([None, None, 9, 0, 2]) == ([3.0, 5.0], [9.0, 2.0])
    assert merge_count_curve([]) == merge_count_curve([None, 0]) == ([], [])
    extended = [*[None] * 100_000, *range(2_000, 0, -1)]
    assert len(merge_count_curve(extended)[0]) > 100
    ranks, counts = merge_count_curve(list(range(100_000, 0, -1)))
    assert len(ranks) < 130 and (ranks[0], ranks[-1], counts[-1]) == (1, 100_000, 1)


def test_the_size_that_is_enough() -> None:
    sizes = [256.0 * 2**step for step in range(8)]
    assert enough_size((sizes, [1, 2, 3, 3.5, 3.6, 3.65, 3.66, 3.66])) == (2048, 3.5)
    assert enough_size((sizes, [2.0**step for step in range(8)])) is None
    assert enough_size(([257.0], [1.0])) is None


def test_lengths_without_special_tokens() -> None:
    vocab = bpeflow.Vocab.build([(b"t", b"h"), (b"th", b"e"), (b"o", b"f")], ["<|endoftext|>"])
    assert token_lengths(vocab) == [256, 2, 1]
