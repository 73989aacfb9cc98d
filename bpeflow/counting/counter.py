"""The counter: chunks of text in, runs of pre-token counts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from bpeflow.corpus import Chunk, ChunkBuffer, Delimiters, DocumentStatistics, InvalidUtf8Policy, decode_chunk
from bpeflow.counting.run import CountRun
from bpeflow.counting.table import CountTable, new_table
from bpeflow.pretokenize import Pretokenizer

#: Distinct pre-tokens that a counter holds before it hands them on: at 100 bytes each or so, some 200 MB. Less would
#: send the frequent ones again and again; more would only take memory, for the long tail hardly repeats.
MAX_DISTINCT = 2_000_000


@dataclass(frozen=True)
class ChunkCounter:
    """What each counter worker runs: a stage function, picklable.

    Attributes:
        delimiters: separator and special tokens, taken out before pre-tokenization.
        pretokenizer: the pattern.
        scanner: what finds its matches.
        invalid_utf8: what to do with input that is not UTF-8.
        partitions: how many mergers share the counts.
        max_distinct: size of the table at which it is handed on.
    """

    delimiters: Delimiters
    pretokenizer: Pretokenizer
    scanner: Literal["native", "regex"]
    invalid_utf8: InvalidUtf8Policy
    partitions: int
    max_distinct: int = MAX_DISTINCT

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[CountRun]:
        table = new_table(self.pretokenizer, self.scanner)
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        for chunk in chunks:
            statistics += self._count(chunk, buffer.read(chunk), table)
            if len(table) >= self.max_distinct:
                yield from self._runs(table, statistics)
                table, statistics = new_table(self.pretokenizer, self.scanner), DocumentStatistics()
        yield from self._runs(table, statistics)

    def _count(self, chunk: Chunk, data: memoryview, table: CountTable) -> DocumentStatistics:
        """Count a chunk: all at once as far as that goes, the rest document by document."""
        done = table.count_documents(data, self.delimiters)
        complete = done.documents - (done.open and not chunk.ends_file)
        statistics = DocumentStatistics(complete, bytes=done.bytes)
        if done.bytes < chunk.length:
            rest = replace(chunk, offset=chunk.offset + done.bytes, length=chunk.length - done.bytes)
            decoded = decode_chunk(bytes(data[done.bytes :]), rest, self.delimiters, self.invalid_utf8)
            statistics += decoded.statistics
            for text in decoded.texts:
                table.count(text)
        return statistics

    def _runs(self, table: CountTable, statistics: DocumentStatistics) -> Iterator[CountRun]:
        for partition in range(self.partitions):
            run = table.run(partition, self.partitions)
            yield replace(run, statistics=statistics) if partition == 0 else run
