"""`CountRun`: the counts of one partition, packed for the way from one process to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.counts import MAX_COUNT, PretokenCounts
from bpeflow.errors import CountOverflowError


@dataclass(frozen=True)
class CountRun:
    """Distinct pre-tokens of one partition with their counts, as byte strings: cheap to pickle, whatever their number.

    Attributes:
        partition: which merger owns it.
        data: the pre-tokens' bytes, one after another.
        lengths: ``uint32[n]`` as bytes.
        counts: ``int64[n]`` as bytes.
        statistics: of the documents that were counted, in one partition's run only, so that they add up.
    """

    partition: int
    data: bytes
    lengths: bytes
    counts: bytes
    statistics: DocumentStatistics = field(default=DocumentStatistics())

    def __len__(self) -> int:
        return len(self.counts) // np.dtype(np.int64).itemsize

    @property
    def size(self) -> int:
        """Bytes of the packed counts."""
        return len(self.data) + len(self.lengths) + len(self.counts)

    @classmethod
    def pack(cls, partition: int, items: Iterable[tuple[bytes, int]]) -> CountRun:
        """Pack ``(pre-token, count)`` pairs. Raises `CountOverflowError` for a count that does not fit 64 bits."""
        tokens, counts = [], []
        for token, count in items:
            if count > MAX_COUNT:
                raise CountOverflowError(f"the count of pre-token {token!r} is {count}, which does not fit 64 bits")
            tokens.append(token)
            counts.append(count)
        lengths = np.fromiter(map(len, tokens), dtype=np.uint32, count=len(tokens))
        return cls(partition, b"".join(tokens), lengths.tobytes(), np.array(counts, dtype=np.int64).tobytes())

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield ``(pre-token, count)`` in the order in which they were packed."""
        start = 0
        for end, count in zip(self._ends().tolist(), _array(self.counts, np.int64).tolist(), strict=True):
            yield self.data[start:end], count
            start = end

    def to_counts(self) -> PretokenCounts:
        """Return the counts of a run that is in canonical order."""
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), self._ends()])
        return PretokenCounts(_array(self.data, np.uint8), offsets, _array(self.counts, np.int64))

    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(_array(self.lengths, np.uint32), dtype=np.int64)


def _array(packed: bytes, dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(packed, dtype=dtype)
