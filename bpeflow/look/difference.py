"""`compare_vocabs` and `compare_texts`: where two tokenizers differ, and how that shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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
        first: the bytes of the tokens of the first tokenizer.
        second: those of the second.
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
    ours, theirs = (_ordinary_ids(tokenizer) for tokenizer in (first, second))
    shared = ours.keys() & theirs.keys()
    specials = first.special_tokens, second.special_tokens
    different = [
        token
        for token in dict.fromkeys([*specials[0], *specials[1]])
        if specials[0].get(token) != specials[1].get(token)
    ]
    merges = enumerate(zip_longest(first.merges, second.merges))
    rank, there = next(((rank, pair) for rank, pair in merges if pair[0] != pair[1]), (None, (None, None)))
    specs = first.to_spec(), second.to_spec()
    return VocabDifference(
        shared=len(shared),
        same_ids=sum(ours[token] == theirs[token] for token in shared),
        only_first=tuple(VocabToken(i, token) for token, i in ours.items() if token not in shared),
        only_second=tuple(VocabToken(i, token) for token, i in theirs.items() if token not in shared),
        special_tokens={token: (specials[0].get(token), specials[1].get(token)) for token in different},
        shared_merges=len({*first.merges} & {*second.merges}),
        first_difference=rank,
        merges_there=there,
        settings={
            name: (getattr(specs[0], name), getattr(specs[1], name))
            for name in _SETTINGS
            if getattr(specs[0], name) != getattr(specs[1], name)
        },
    )


def compare_texts(first: Explanation, second: Explanation) -> Iterator[Block]:
    """Yield the blocks of a text that two tokenizers have explained, in order.

    >>> from bpeflow import Tokenizer
    >>> small = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=258)
    >>> large = Tokenizer.train(iter(["low low low", "lower"]), vocab_size=259)
    >>> blocks = compare_texts(small.explain("slow"), large.explain("slow"))
    >>> [(block.span, len(block.first), len(block.second), block.differs) for block in blocks]
    [((0, 1), 1, 1, False), ((1, 4), 2, 1, True)]
    """
    sides = list(first.tokens), list(second.tokens)
    ends = [{token.span[1] for token in side} for side in sides]
    ends[0].add(len(first.text.encode()))  # either can end in text that its pattern drops
    ends[1].add(len(second.text.encode()))
    start = 0
    indexes = [0, 0]
    for end in sorted(ends[0] & ends[1]):
        parts = []
        for number, side in enumerate(sides):
            after = indexes[number]
            while after < len(side) and side[after].span[1] <= end:
                after += 1
            parts.append(tuple(side[indexes[number] : after]))
            indexes[number] = after
        if start < end:
            yield Block((start, end), *parts)
        start = end


def compare_pretokens(first: Tokenizer, second: Tokenizer, counts: PretokenCounts) -> Iterator[PretokenDifference]:
    """Yield the pre-tokens that two tokenizers divide differently, the most frequent first."""
    tokens = [each.vocab.decoded_tokens for each in (first, second)]
    lengths = [np.array([*map(len, side)]) for side in tokens]
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


def _ordinary_ids(tokenizer: Tokenizer) -> dict[bytes, int]:
    return {token: token_id for token_id, token in enumerate(tokenizer.vocab.ordinary_tokens) if token}
