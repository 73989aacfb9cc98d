"""The counter stage: chunks of text in, shards of pre-token counts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Literal

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import Chunk, StreamChunk
from bpeflow.corpus.documents import ChunkBuffer, Delimiters, DocumentStatistics, decode_chunk
from bpeflow.corpus.formats.jsonl import read_records
from bpeflow.corpus.formats.records import record_delimiters
from bpeflow.corpus.left_out import unmatched_error
from bpeflow.corpus.sources import Source
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.shards import Scratch, Shard, owned_partitions
from bpeflow.counting.shared_tables import SharedTables, TablePart
from bpeflow.counting.table import (
    CountedDocuments,
    CountTable,
    NativeTable,
    new_table,
)
from bpeflow.errors import UnmatchedTextError
from bpeflow.flow import set_gauge
from bpeflow.pretokenize.regex import Pretokenizer


@dataclass(frozen=True)
class ChunkCounter:
    """The picklable stage function of a counter.

    When its table reaches the counter's share of the memory limit, the counter spills it and
    continues with an empty table. Frequent pre-tokens then occur in several files, but most pre-tokens are rare and
    do not.

    Attributes:
        delimiters: separator and special tokens, removed before pre-tokenization.
        pretokenizer: the pattern and the normalizer.
        scanner: how matches of the pattern are found.
        invalid_utf8: what to do with input that is not UTF-8.
        mergers: number of mergers that share the counts.
        memory: the memory limit's shares.
        scratch: where to spill.
        sources: description of each source, by its index.
        shared: where to leave the last table if mergers are in the same process.
    """

    delimiters: Delimiters
    pretokenizer: Pretokenizer
    scanner: Literal["native", "regex"]
    invalid_utf8: InvalidUtf8Policy
    mergers: int
    memory: MemoryBudget
    scratch: Scratch
    sources: Sequence[Source] = (Source(),)
    shared: SharedTables | None = None

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[Shard | TablePart]:
        """Count chunks. Yield shards when the table is spilled and when the input ends."""
        tables = self._new_tables()
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        most = 0  # the most distinct pre-tokens in a table so far
        most_new = 0  # the most new pre-tokens in a chunk so far: an estimate for the next chunk
        spilled = False
        for chunk in chunks:
            table = tables[self.sources[chunk.source].weight]
            before = len(table)
            statistics += self._count(chunk, buffer.read(chunk), table)
            most_new = max(most_new, len(table) - before)
            most = max(most, len(table))
            set_gauge(most)
            if sum(table.memory(most_new) for table in tables.values()) > self.memory.counter:
                shards = self._shards(tables, statistics, spill=True)
                tables, statistics = self._new_tables(), DocumentStatistics()
                spilled = True
                yield from shards
        memory = sum(table.memory(0) for table in tables.values())
        spill = spilled or memory > self.memory.largest_sent_table
        if self.shared is not None and not spill and self.scanner == "native":
            yield from self._share(self.shared, tables, statistics)
            return
        shards = self._shards(tables, statistics, spill)
        tables.clear()  # free them before sending the shards, which copies them
        yield from shards

    def _new_tables(self) -> dict[int, CountTable]:
        """Return an empty table for each distinct weight of the sources."""
        return {source.weight: new_table(self.pretokenizer, self.scanner) for source in self.sources}

    def _count(self, chunk: Chunk, data: memoryview, table: CountTable) -> DocumentStatistics:
        """Count a chunk of text or of records and return its statistics."""
        if isinstance(chunk, StreamChunk) and chunk.holds != "text":
            statistics = self._count_records(chunk, table)
        else:
            statistics = self._count_text(chunk, data, table, self.delimiters)
        return statistics if len(self.sources) == 1 else statistics.of_source(chunk.source)

    def _count_records(self, chunk: StreamChunk, table: CountTable) -> DocumentStatistics:
        source = self.sources[chunk.source]
        records = read_records(chunk, source.text_field, self.invalid_utf8, source.bad_records)
        text = replace(chunk, length=len(records.data))
        counted = self._count_text(text, memoryview(records.data), table, self._record_delimiters)
        return DocumentStatistics(
            counted.documents + records.skipped,
            records.skipped,
            counted.bytes - counted.documents,
            bad_records=records.bad_records,
            first_bad_record=records.first_bad_record,
        )

    @cached_property
    def _record_delimiters(self) -> Delimiters:
        return record_delimiters(self.delimiters)

    def _count_text(
        self, chunk: Chunk, data: memoryview, table: CountTable, delimiters: Delimiters
    ) -> DocumentStatistics:
        """Count a chunk of text: as much as possible in one pass, the rest document by document.

        With a normalizer, that is all of a chunk in ASCII, or nothing.
        """
        normalizer = self.pretokenizer.normalizer
        at_once = not normalizer or normalizer.keeps_ascii(bytes(data).replace(delimiters.record_end or b"", b""))
        done = table.count_documents(data, delimiters) if at_once else CountedDocuments()
        complete = done.documents - (done.open and not chunk.ends_file)
        statistics = DocumentStatistics(complete, bytes=done.bytes)
        if done.bytes < chunk.length:
            rest = replace(chunk, offset=chunk.offset + done.bytes, length=chunk.length - done.bytes)
            undecoded = bytes(data[done.bytes :])
            decoded = decode_chunk(undecoded, rest, delimiters, self.invalid_utf8)
            statistics += decoded.statistics
            try:
                for text in decoded.texts:
                    table.count(normalizer.utf8(text))
            except UnmatchedTextError:
                field = self.sources[chunk.source].text_field
                raise unmatched_error(
                    undecoded, rest, delimiters, self.pretokenizer, self.invalid_utf8, field
                ) from None
        return statistics

    def _share(
        self, shared: SharedTables, tables: Mapping[int, CountTable], statistics: DocumentStatistics
    ) -> Iterator[TablePart]:
        for weight, table in tables.items():
            assert isinstance(table, NativeTable)  # noqa: S101 -- for the type checker
            for part in shared.share(table, weight, self.mergers):
                yield replace(part, statistics=statistics)
                statistics = DocumentStatistics()

    def _shards(self, tables: Mapping[int, CountTable], statistics: DocumentStatistics, spill: bool) -> list[Shard]:
        statistics = sum((table.statistics() for table in tables.values()), start=statistics)
        shards = []
        for weight, table in tables.items():
            shard = table.shard(self.scratch.new_path("counter") if spill and len(table) else None, weight)
            shard = replace(shard, statistics=statistics)
            shards += [shard.select(*owned) for owned in zip(owned_partitions(self.mergers), count())]
            statistics = DocumentStatistics()
        return shards
