"""Ranges of pre-tokens: the sum of the shards of all segments, divided into parts that are summed independently."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from bpeflow.counting.shards import KeyRange, Mark, Shard


@dataclass(frozen=True)
class RangeSum:
    """The task to sum shards in a range of pre-tokens.

    Attributes:
        key_range: the range.
        shards: the parts of durable shards by bytes that have all their records in the range, and a few others.
    """

    key_range: KeyRange
    shards: tuple[Shard, ...]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(shard.size for shard in self.shards)


def divide(shards: Sequence[Shard], parts: int) -> list[RangeSum]:
    """Divide the sum of durable shards into ranges of about the same size.

    The ranges cover all pre-tokens and have none in common. They begin at marks of shards, so there are fewer of them
    if the shards are small.

    Args:
        shards: shards in order of bytes, with marks.
        parts: the number of ranges wanted.
    """
    places = [_places(shard) for shard in shards]
    blocks = sorted((begin.key, end.offset - begin.offset) for own in places for begin, end in pairwise(own))
    total = sum(size for _, size in blocks)
    bounds: list[bytes] = []
    before = 0  # the bytes in blocks that begin below `key`
    for key, size in blocks:
        if key and before * parts >= total * (len(bounds) + 1) and key not in bounds[-1:]:
            bounds.append(key)
        before += size
    return [
        RangeSum(limits, tuple(filter(len, (_part(*pair, limits) for pair in zip(shards, places, strict=True)))))
        for limits in map(KeyRange, [None, *bounds], [*bounds, None])
    ]


def _places(shard: Shard) -> list[Mark]:
    """Return the begin of a shard, its marks, and its end."""
    return [Mark(b"", 0, 0), *shard.marks, Mark(b"", shard.size, shard.tokens)]


def _part(shard: Shard, places: Sequence[Mark], key_range: KeyRange) -> Shard:
    """Return the part of a shard from the last of its places at or before a range to the first one after it."""
    key, end = attrgetter("key"), len(places) - 1
    first = 0 if key_range.low is None else bisect_right(places, key_range.low, 1, end, key=key) - 1
    last = end if key_range.high is None else bisect_left(places, key_range.high, 1, end, key=key)
    return shard.part(places[first], places[last])
