"""Ranges of pre-tokens: the sum of the shards of all segments, divided into parts that are summed independently."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
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
    blocks = sorted(
        (begin.key, end.offset - begin.offset)
        for shard in shards
        for begin, end in zip(_places(shard)[:-1], _places(shard)[1:], strict=True)
    )
    total = sum(size for _, size in blocks)
    bounds: list[bytes] = []
    before = 0  # the bytes in blocks that begin below `key`
    for key, size in blocks:
        if key and before * parts >= total * (len(bounds) + 1) and key not in bounds[-1:]:
            bounds.append(key)
        before += size
    limits = [None, *bounds, None]
    return [
        RangeSum(key_range, tuple(part for shard in shards if len(part := _part(shard, key_range))))
        for key_range in map(KeyRange, limits[:-1], limits[1:])
    ]


def _places(shard: Shard) -> list[Mark]:
    """Return the marks of a shard, and its begin and end as two more."""
    return [Mark(b"", 0, 0), *shard.marks, Mark(b"", shard.size, shard.tokens)]


def _part(shard: Shard, key_range: KeyRange) -> Shard:
    """Return the part of a shard from the last mark at or before a range to the first one after it."""
    places, key = _places(shard), attrgetter("key")
    begin = 0 if key_range.low is None else bisect_right(shard.marks, key_range.low, key=key)
    end = len(places) - 1 if key_range.high is None else bisect_left(shard.marks, key_range.high, key=key) + 1
    return shard.part(places[begin], places[end])
