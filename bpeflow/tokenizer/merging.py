"""The merging of a pre-token in plain Python: the specification of the native encoder."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def merge_table(merge_ids: NDArray[np.unsignedinteger[Any]]) -> dict[tuple[int | None, int | None], tuple[int, int]]:
    """Return the rank of each merge and the id of its result, by the ids of its parts.

    Args:
        merge_ids: the ids of left part, right part and result, of shape (merges, 3). Of two merges of the same parts,
            the first applies.
    """
    left, right, results = merge_ids[::-1].T.tolist()
    ranks = range(len(results) - 1, -1, -1)
    return dict(zip(zip(left, right, strict=True), zip(ranks, results, strict=True), strict=True))


class PretokenMerging:
    """Applies the merge of the lowest rank, at its leftmost position, until none applies.

    A token's position is that of its first byte. `following` and `previous` link the positions of neighbours.
    Applicable merges wait in a heap as (rank, position). An entry is stale, and is dropped, if the token at its
    position and the next token no longer make a merge of that rank.

    Attributes:
        ids: the id of the token at each position, None where there is none.
        following: the position of the next token, the length of the pre-token after the last.
        previous: the position of the token before, -1 before the first.
    """

    def __init__(
        self, pretoken: bytes, byte_ids: Sequence[int], merges: Mapping[tuple[int | None, int | None], tuple[int, int]]
    ) -> None:
        """Start with a token for each byte.

        Args:
            pretoken: the bytes.
            byte_ids: the id of each of the 256 bytes.
            merges: as `merge_table` returns them.
        """
        self.ids: list[int | None] = [byte_ids[byte] for byte in pretoken]
        self.following = list(range(1, len(pretoken) + 1))
        self.previous = list(range(-1, len(pretoken) - 1))
        self._merges = merges

    def find(self, position: int) -> tuple[int, int] | None:
        """Return rank and result of the merge of the token at `position` with the next one."""
        if position < 0 or (following := self.following[position]) == len(self.ids):
            return None
        return self._merges.get((self.ids[position], self.ids[following]))

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Apply all merges. Yield rank, result and position of each before it is applied."""
        ids, following, previous, find = self.ids, self.following, self.previous, self.find
        heap = [(merge[0], position) for position in range(len(ids)) if (merge := find(position))]
        heapq.heapify(heap)
        while heap:
            rank, position = heapq.heappop(heap)
            merge = find(position)
            if merge is None or merge[0] != rank:
                continue
            yield rank, merge[1], position
            absorbed = following[position]
            ids[position], ids[absorbed] = merge[1], None
            following[position] = following[absorbed]
            if following[position] < len(ids):
                previous[following[position]] = position
            for changed in (previous[position], position):
                if merge := find(changed):
                    heapq.heappush(heap, (merge[0], changed))
