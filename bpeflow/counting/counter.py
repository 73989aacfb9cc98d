"""The counter: chunks of text in, runs of pre-token counts out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from bpeflow.corpus import Chunk, Delimiters, DocumentStatistics, InvalidUtf8Policy, decode_chunk, read_chunk
from bpeflow.counting.run import CountRun
from bpeflow.pretokenize import Pretokenizer

#: Distinct pre-tokens that a counter holds before it hands them on. Each takes some 150 bytes, so this bounds a
#: counter's table at about 300 MB. Less would send the frequent ones again and again; more would only take memory, for
#: what is left in the long tail hardly repeats.
MAX_DISTINCT = 2_000_000


@dataclass(frozen=True)
class ChunkCounter:
    """What each counter worker runs: a stage function, picklable.

    Attributes:
        delimiters: separator and special tokens, taken out before pre-tokenization.
        pretokenizer: the pattern.
        invalid_utf8: what to do with input that is not UTF-8.
        partitions: how many mergers share the counts.
        max_distinct: size of the table at which it is handed on.
    """

    delimiters: Delimiters
    pretokenizer: Pretokenizer
    invalid_utf8: InvalidUtf8Policy
    partitions: int
    max_distinct: int = MAX_DISTINCT

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[CountRun]:
        counts: Counter[str] = Counter()
        statistics = DocumentStatistics()
        for chunk in chunks:
            decoded = decode_chunk(read_chunk(chunk), chunk, self.delimiters, self.invalid_utf8)
            statistics += decoded.statistics
            for text in decoded.texts:
                counts.update(self.pretokenizer.pretokens(text))
            if len(counts) >= self.max_distinct:
                yield from self._runs(counts, statistics)
                counts, statistics = Counter(), DocumentStatistics()
        yield from self._runs(counts, statistics)

    def _runs(self, counts: Counter[str], statistics: DocumentStatistics) -> Iterator[CountRun]:
        """Part the counts by a hash that is the same in every process, so that a pre-token has one owner."""
        parts: list[list[tuple[bytes, int]]] = [[] for _ in range(self.partitions)]
        for text, count in counts.items():
            token = text.encode()
            parts[crc32(token) % self.partitions].append((token, count))
        for partition, part in enumerate(parts):
            yield CountRun.pack(partition, part, statistics if partition == 0 else DocumentStatistics())
