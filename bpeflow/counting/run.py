"""`CountRun`: the counts of one partition, packed for the way from one process to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.counts import MAX_COUNT
from bpeflow.errors import CountOverflowError


@dataclass(frozen=True)
class CountRun:
    """Distinct pre-tokens of one partition with their counts, as byte strings: cheap to pickle, whatever their number.

    Attributes:
        partition: which merger owns it.
        statistics: of the documents that were counted, in one partition's run only, so that they add up.
        data: the pre-tokens' bytes, one after another.
        lengths: ``uint32[n]`` as bytes.
        counts: ``int64[n]`` as bytes.
    """

    partition: int
    statistics: DocumentStatistics
    data: bytes
    lengths: bytes
    counts: bytes

    @classmethod
    def pack(cls, partition: int, items: Iterable[tuple[bytes, int]], statistics: DocumentStatistics) -> CountRun:
        """Pack ``(pre-token, count)`` pairs. Raises `CountOverflowError` for a count that does not fit 64 bits."""
        tokens, counts = [], []
        for token, count in items:
            if count > MAX_COUNT:
                raise CountOverflowError(f"the count of pre-token {token!r} is {count}, which does not fit 64 bits")
            tokens.append(token)
            counts.append(count)
        lengths = np.fromiter(map(len, tokens), dtype=np.uint32, count=len(tokens))
        return cls(
            partition, statistics, b"".join(tokens), lengths.tobytes(), np.array(counts, dtype=np.int64).tobytes()
        )

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield ``(pre-token, count)`` in the order in which they were packed."""
        start = 0
        ends = np.cumsum(_array(self.lengths, np.uint32), dtype=np.int64).tolist()
        for end, count in zip(ends, _array(self.counts, np.int64).tolist(), strict=True):
            yield self.data[start:end], count
            start = end


def _array(packed: bytes, dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(packed, dtype=dtype)
