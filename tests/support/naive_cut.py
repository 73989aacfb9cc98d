"""The cut of superwords as defined, as the oracle: cells of pairs, and pre-tokens cut at all but the frequent ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise

from naive_extension import Pieces

from bpeflow.formats.tokenizer_spec import TokenizerSpec


def cell_of(left: int, right: int) -> int:
    """Return the cell of a pair of ids."""
    return ((left << 32 | right) * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 42


def count_cells(base: TokenizerSpec, words: Mapping[bytes, int], encoded: Pieces) -> Counter[int]:
    """Count the cells of the pairs of adjacent tokens of `base`, which has `encoded` each word whole."""
    ids = _ids(base)
    cells: Counter[int] = Counter()
    for word, units in encoded.items():
        for left, right in pairwise(units):
            cells[cell_of(ids[left], ids[right])] += words[word]
    return cells


def _ids(base: TokenizerSpec) -> dict[bytes, int]:
    return {token: number for number, token in reversed([*enumerate(base.vocab.decoded_tokens)])}


def cut_words(
    base: TokenizerSpec, words: Mapping[bytes, int], encoded: Pieces, frequent: Collection[int]
) -> Counter[bytes]:
    """Cut words between the tokens of each pair whose cell is not frequent; leave out single tokens."""
    ids = _ids(base)
    fragments: Counter[bytes] = Counter()
    for word, units in encoded.items():
        fragment = units[:1]
        for left, right in pairwise(units):
            if cell_of(ids[left], ids[right]) not in frequent:
                fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
                fragment = []
            fragment.append(right)
        fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
    return +fragments
