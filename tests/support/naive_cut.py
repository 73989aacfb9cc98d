"""The cut of superwords as defined, as the oracle: pairs of units, and pre-tokens cut at all but the frequent ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise

from naive_extension import encode_words

from bpeflow.formats.tokenizer_spec import TokenizerSpec

Pair = tuple[bytes, bytes]


def count_pairs(base: TokenizerSpec, words: Mapping[bytes, int]) -> Counter[Pair]:
    """Count the pairs of adjacent tokens of `base`, which encodes each word whole."""
    pairs: Counter[Pair] = Counter()
    for word, units in encode_words(base, dict(words)).items():
        for pair in pairwise(units):
            pairs[pair] += words[word]
    return pairs


def cut_words(base: TokenizerSpec, words: Mapping[bytes, int], frequent: Collection[Pair]) -> Counter[bytes]:
    """Cut words between the tokens of each pair that is not frequent; leave out what is left as a single token."""
    fragments: Counter[bytes] = Counter()
    for word, units in encode_words(base, dict(words)).items():
        fragment = units[:1]
        for left, right in pairwise(units):
            if (left, right) not in frequent:
                fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
                fragment = []
            fragment.append(right)
        fragments[b"".join(fragment)] += words[word] * (len(fragment) > 1)
    return +fragments
