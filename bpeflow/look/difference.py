"""`compare_vocabs` and `compare_texts`: where two tokenizers differ, and how that shows."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpeflow.counting.counts import PretokenCounts
from bpeflow.look.explanation import Explanation, Span, Token
from bpeflow.look.vocabulary import VocabToken
from bpeflow.tokenizer.parallel import encoded_batches
from bpeflow.tokenizer.tokenizer import Tokenizer
from bpeflow.vocab import Merge

#: What tokenizers can differ in besides their vocabulary.
_SETTINGS = ("pattern", "unmatched", "normalizer", "whole_tokens")


@dataclass(frozen=True)
class VocabDifference:
    """What two vocabularies share. Special tokens are compared separately from ordinary ones.

    Attributes:
        shared: the number of ordinary tokens, by their bytes, that both have.
        same_ids: the number of these with the same id in both.
        only_first: the tokens that only the first has, in the order of its ids.
        only_second: the tokens that only the second has.
        special_tokens: the special tokens that only one has, or that have other ids: the id in each, or None.
        shared_merges: the number of merges that both have, at whatever rank.
        first_difference: the first rank at which the merges differ; None if they are the same.
        merges_there: the merges of the two at that rank; None for one that has no more.
        settings: how each splits text, where they differ: the value of the setting in each.
    """

    shared: int
    same_ids: int
    only_first: tuple[VocabToken, ...]
    only_second: tuple[VocabToken, ...]
    special_tokens: dict[str, tuple[int | None, int | None]]
    shared_merges: int
    first_difference: int | None
    merges_there: tuple[Merge | None, Merge | None]
    settings: dict[str, tuple[Any, Any]]

    @property
    def splits_differ(self) -> bool:
        """Whether the two can split a text into different pre-tokens."""
        return bool(self.special_tokens) or not self.settings.keys() <= {"whole_tokens"}


@dataclass(frozen=True, slots=True)
class Block:
    """A shortest part of a text that begins and ends between two tokens of both tokenizers.

    Attributes:
        span: where it is in the text, in bytes.
        first: the tokens of the first tokenizer.
        second: the tokens of the second.
    """

    span: Span
    first: tuple[Token, ...]
    second: tuple[Token, ...]

    @property
    def differs(self) -> bool:
        """Whether the two divide it differently."""
        return [token.bytes for token in self.first] != [token.bytes for token in self.second]


@dataclass(frozen=True, slots=True)
class PretokenDifference:
    """A pre-token that two tokenizers divide differently.

    Attributes:
        pretoken: its bytes.
        count: its occurrences.
        first: the bytes of its tokens in the first tokenizer.
        second: the bytes of its tokens in the second tokenizer.
    """

    pretoken: bytes
    count: int
    first: tuple[bytes, ...]
    second: tuple[bytes, ...]


def compare_vocabs(first: Tokenizer, second: Tokenizer) -> VocabDifference:
    """Return what two tokenizers share.

    >>> from bpeflow import Tokenizer
    >>> small = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> large = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> difference = compare_vocabs(small, large)
    >>> difference.shared, difference.first_difference, difference.merges_there
    (257, 1, (None, (b'l', b'ow')))
    """
    ours, theirs = first.vocab.ordinary_ids, second.vocab.ordinary_ids
    shared = ours.keys() & theirs.keys()
    merges = enumerate(zip_longest(first.merges, second.merges))
    rank, there = next(((rank, pair) for rank, pair in merges if pair[0] != pair[1]), (None, (None, None)))
    return VocabDifference(
        shared=len(shared),
        same_ids=len(ours.items() & theirs.items()),
        only_first=tuple(VocabToken(i, token) for token, i in ours.items() if token not in shared),
        only_second=tuple(VocabToken(i, token) for token, i in theirs.items() if token not in shared),
        special_tokens=_differing(first.special_tokens, second.special_tokens),
        shared_merges=len({*first.merges} & {*second.merges}),
        first_difference=rank,
        merges_there=there,
        settings=_differing(_settings(first), _settings(second)),
    )


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    return {name: getattr(tokenizer.to_spec(), name) for name in _SETTINGS}


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values of the keys whose values differ, None for one that is missing."""
    pairs = {key: (ours.get(key), theirs.get(key)) for key in (*ours, *theirs)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def compare_texts(first: Explanation, second: Explanation) -> Iterator[Block]:
    """Yield the blocks of a text that two tokenizers have explained, in order.

    >>> from bpeflow import Tokenizer
    >>> small = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> large = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> blocks = compare_texts(small.explain("slow"), large.explain("slow"))
    >>> [(block.span, len(block.first), len(block.second), block.differs) for block in blocks]
    [((0, 1), 1, 1, False), ((1, 4), 2, 1, True)]
    """
    sides = first.tokens, second.tokens
    ends = [[token.span[1] for token in side] for side in sides]
    whole = len(first.text.encode())  # either can end in text that its pattern drops
    for start, end in pairwise(sorted({0, *({*ends[0], whole} & {*ends[1], whole})})):
        parts = [tuple(side[bisect(of, start) : bisect(of, end)]) for side, of in zip(sides, ends, strict=True)]
        yield Block((start, end), *parts)


def compare_pretokens(first: Tokenizer, second: Tokenizer, counts: PretokenCounts) -> Iterator[PretokenDifference]:
    """Yield the pre-tokens that two tokenizers divide differently, the most frequent first."""
    tokens = [each.vocab.decoded_tokens for each in (first, second)]
    lengths = [each.lengths for each in tokens]
    batches = [encoded_batches(each._encoder, counts) for each in (first, second)]
    for (start, our_ids, our_ends), (_, their_ids, their_ends) in zip(*batches, strict=True):
        pretoken_ends = counts.offsets[start + 1 : start + 1 + len(our_ends)] - counts.offsets[start]
        token_ends = np.cumsum(lengths[0][our_ids]), np.cumsum(lengths[1][their_ids])
        differing = np.searchsorted(pretoken_ends, np.setxor1d(*token_ends, assume_unique=True))
        for number in np.unique(differing).tolist():
            left = _part(tokens[0], our_ids, our_ends, number)
            right = _part(tokens[1], their_ids, their_ends, number)
            yield PretokenDifference(b"".join(left), int(counts.counts[start + number]), left, right)


def _part(tokens: Sequence[bytes], ids: NDArray[Any], ends: NDArray[np.int64], number: int) -> tuple[bytes, ...]:
    """Return the bytes of the tokens of a pre-token, given where the ids of each end."""
    return tuple(tokens[i] for i in ids[ends[number - 1] if number else 0 : ends[number]].tolist())
