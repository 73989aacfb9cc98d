"""A sample of documents: of so many bytes at most, drawn by a seed and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush

_SIZE_BITS = 48


@dataclass(frozen=True, slots=True)
class Sample:
    """How to draw it.

    Every document has a number drawn by the seed and by its place (which file of the source, which document of the
    file). In ascending order of these numbers documents are taken as long as all of them together fit into
    ``max_bytes``. So a sample does not depend on chunks or workers, nor on the form of the files.
    """

    max_bytes: int
    seed: int = 0

    def number(self, file: int, document: int) -> int:
        """The number of a document, of 64 bits."""
        return int.from_bytes(blake2b(b"%d %d %d" % (self.seed, file, document), digest_size=8).digest(), "big")

    def threshold(self, documents: Iterable[tuple[int, int]]) -> int:
        """The number from which on documents are left out, from the numbers and sizes of all of them.

        In memory are those that are taken only, in a few dozen bytes each.
        """
        threshold = 1 << 64
        taken: list[int] = []  # number and size in one integer, negative: the greatest number is the heap's first
        total = 0
        for number, size in documents:
            if number >= threshold:
                continue
            heappush(taken, -(number << _SIZE_BITS | size))
            total += size
            while total > self.max_bytes:
                last = -heappop(taken)
                threshold = last >> _SIZE_BITS
                total -= last & ((1 << _SIZE_BITS) - 1)
        return threshold
