"""The cut of superwords as defined, as the oracle: cells of pairs, and pre-tokens cut at all but the frequent ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise

from naive_extension import encode_words

from bpeflow.formats.tokenizer_spec import TokenizerSpec

Pair = tuple[bytes, bytes]


def cell_of(left: int, right: int) -> int:
    """Return the cell of a pair of ids."""
    return ((left << 32 | right) * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 42


def count_pairs(base: TokenizerSpec, words: Mapping[bytes, int]) -> Counter[Pair]:
    """Count the pairs of adjacent tokens of `base`, which encodes each word whole."""
    pairs: Counter[Pair] = Counter()
    for word, units in encode_words(base, dict(words)).items():
        for pair in pairwise(units):
            pairs[pair] += words[word]
    return pairs


def count_cells(base: TokenizerSpec, words: Mapping[bytes, int]) -> Counter[int]:
    """Count these pairs by cell."""
    ids = _ids(base)
    cells: Counter[int] = Counter()
    for (left, right), count in count_pairs(base, words).items():
        cells[cell_of(ids[left], ids[right])] += count
    return cells


def _ids(base: TokenizerSpec) -> dict[bytes, int]:
    return {token: number for number, token in reversed([*enumerate(base.vocab.decoded_tokens)])}


def cut_words(base: TokenizerSpec, words: Mapping[bytes, int], frequent: Collection[int]) -> Counter[bytes]:
    """Cut words between the tokens of each pair whose cell is not frequent; leave out single tokens."""
    ids = _ids(base)
    fragments: Counter[bytes] = Counter()
    for word, units in encode_words(base, dict(words)).items():
        fragment = units[:1]
        for left, right in pairwise(units):
            if cell_of(ids[left], ids[right]) not in frequent:
                fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
                fragment = []
            fragment.append(right)
        fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
    return +fragments
