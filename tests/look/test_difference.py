"""Differences of vocabularies, of their tokens of a text, and of pre-tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
from adversarial import adversarial_text
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_extension import encode_words

from bpeflow import PretokenCounts, Tokenizer, count
from bpeflow.look.difference import compare_pretokens, compare_texts, compare_vocabs
from bpeflow.tokenizer import parallel
from bpeflow.vocab import Merge, Vocab

BASE: list[Merge] = [(b"t", b"h"), (b"th", b"e"), (b"l", b"o")]


def tokenizer_of(
    *merges: Merge, specials: tuple[str, ...] = (), pattern: str = "gpt2", unmatched: str = "isolate"
) -> Tokenizer:
    vocab = Vocab.build(merges, specials)
    return Tokenizer(vocab, merges, pattern=pattern, unmatched=unmatched)  # type: ignore[arg-type]


def test_shared_tokens_and_the_first_merge_that_differs() -> None:
    first = tokenizer_of(*BASE, (b"o", b"w"))
    second = tokenizer_of(*BASE[:2], (b"o", b"w"), (b"lo", b"w"), (b"l", b"o"))
    difference = compare_vocabs(first, second)
    assert (difference.shared, difference.same_ids) == (256 + 4, 256 + 2)
    assert [(token.id, token.bytes) for token in difference.only_second] == [(259, b"low")]
    assert difference.only_first == ()
    assert difference.shared_merges == 4
    assert (difference.first_difference, difference.merges_there) == (2, ((b"l", b"o"), (b"o", b"w")))
    assert difference.settings == {}


def test_a_prefix_parts_where_it_ends() -> None:
    assert compare_vocabs(tokenizer_of(*BASE), tokenizer_of(*BASE)).first_difference is None
    difference = compare_vocabs(tokenizer_of(*BASE), tokenizer_of(*BASE[:2]))
    assert (difference.first_difference, difference.merges_there) == (2, ((b"l", b"o"), None))


def test_special_tokens_and_settings() -> None:
    first = tokenizer_of(specials=("<a>", "<b>"))
    second = tokenizer_of(specials=("<b>", "<c>"), pattern="cl100k")
    difference = compare_vocabs(first, second)
    assert difference.special_tokens == {"<a>": (256, None), "<b>": (257, 256), "<c>": (None, 257)}
    assert difference.shared == 256
    assert difference.settings == {"pattern": ("gpt2", "cl100k")}


PAIRS = [
    (tokenizer_of(*BASE), tokenizer_of((b"h", b"e"), (b"o", b"w"), (b"\xc3", b"\xa9"), pattern="o200k")),
    (tokenizer_of(*BASE), tokenizer_of(*BASE, specials=("the",))),
    (tokenizer_of(*BASE, pattern="[a-z]+", unmatched="drop"), tokenizer_of(*BASE, pattern="[^t]", unmatched="drop")),
]


@settings(max_examples=50)
@given(pair=st.sampled_from(PAIRS), text=adversarial_text | st.text("thelow é", max_size=12))
def test_blocks_are_the_shortest_with_common_ends(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    explained = [tokenizer.explain(text) for tokenizer in pair]
    blocks = list(compare_texts(*explained))
    assert [token for block in blocks for token in block.first] == list(explained[0].tokens)
    assert [token for block in blocks for token in block.second] == list(explained[1].tokens)
    assert all(left.span[1] == right.span[0] for left, right in pairwise(blocks))
    for block in blocks:
        inner = [{token.span[1] for token in side} - {block.span[1]} for side in (block.first, block.second)]
        assert not inner[0] & inner[1]
        assert all(block.span[0] <= token.span[0] for token in (*block.first, *block.second))
        same = [token.bytes for token in block.first] == [token.bytes for token in block.second]
        assert block.differs != same


@settings(max_examples=50)
@given(
    pair=st.sampled_from(PAIRS),
    words=st.dictionaries(st.text("thelow ", min_size=1, max_size=12).map(str.encode), st.integers(1, 3)),
)
def test_pretokens_that_differ_are_those_with_other_tokens(
    pair: tuple[Tokenizer, Tokenizer], words: dict[bytes, int]
) -> None:
    counts = PretokenCounts.from_mapping(words)
    sides = [encode_words(tokenizer.to_spec(), words) for tokenizer in pair]
    expected = [(word, n, *(tuple(side[word]) for side in sides)) for word, n in counts.items()]
    found = compare_pretokens(*pair, counts)
    assert [(word.pretoken, word.count, word.first, word.second) for word in found] == [
        each for each in expected if each[2] != each[3]
    ]


@pytest.mark.parametrize("batch", [1, 100_000])
def test_the_most_frequent_pretokens_that_differ_come_first(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_BATCH", batch)
    counts = count(iter(["low low the the the hew"]))
    first, second = tokenizer_of(*BASE), tokenizer_of((b"h", b"e"))
    found = list(compare_pretokens(first, second, counts))[:2]
    assert [(word.pretoken, word.count, word.first, word.second) for word in found] == [
        (b" the", 3, (b" ", b"the"), (b" ", b"t", b"he")),
        (b" hew", 1, (b" ", b"h", b"e", b"w"), (b" ", b"he", b"w")),
    ]
    assert [word.pretoken for word in compare_pretokens(first, second, counts)] == [
        b" the",
        b" hew",
        b" low",
        b"low",
    ]
