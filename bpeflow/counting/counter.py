"""The counter stage: chunks of text in, shards of pre-token counts out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bpeflow.corpus.documents import Chunk, DocumentStatistics
from bpeflow.corpus.open_chunk import ChunkBuffer, open_chunk
from bpeflow.corpus.text_rules import TextRules
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.shards import Scratch, Shard, divide_shards
from bpeflow.counting.table import CountedDocuments, CountTable, NativeTable, SharedTables, new_table
from bpeflow.errors import PatternTimeoutError, UnmatchedTextError
from bpeflow.flow import set_gauge

if TYPE_CHECKING:
    from bpeflow.counting.units import Units  # numpy, which workers do without


@dataclass(frozen=True)
class ChunkCounter:
    """The picklable stage function of a counter.

    When its table reaches the counter's share of the memory limit, the counter spills it and
    continues with an empty table. Frequent pre-tokens then occur in several files, but most pre-tokens are rare and
    do not.

    Attributes:
        rules: how text becomes pre-tokens.
        mergers: number of mergers that share the counts.
        memory: the memory limit's shares.
        scratch: where to spill.
        shared: where to leave the last table if the reducer is in the same process.
        units: count cells of their pairs, or fragments, instead of pre-tokens.
    """

    rules: TextRules
    mergers: int
    memory: MemoryBudget
    scratch: Scratch
    shared: SharedTables | None = None
    units: Units | None = None

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[Shard]:
        """Count chunks. Yield shards when the table is spilled and when the input ends."""
        tables = self._new_tables()
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        most = 0  # the most distinct pre-tokens in a table so far
        most_new = 0  # the most new pre-tokens in a chunk so far: an estimate for the next chunk
        spilled = False
        for chunk in chunks:
            table = tables[self.rules.sources[chunk.source].weight]
            before = len(table)
            statistics += self._count(chunk, buffer, table)
            most_new = max(most_new, len(table) - before)
            most = max(most, len(table))
            set_gauge(most)
            if sum(table.memory(most_new) for table in tables.values()) > self.memory.counter:
                shards = self._shards(tables.values(), statistics, spill=True)
                tables, statistics = self._new_tables(), DocumentStatistics()
                spilled = True
                yield from shards
        memory = sum(table.memory(0) for table in tables.values())
        spill = spilled or memory > self.memory.largest_sent_table
        native = [table for table in tables.values() if isinstance(table, NativeTable)]
        if self.shared is not None and not spill and native:
            self.shared.add(native, statistics)
            return
        shards = self._shards(tables.values(), statistics, spill)
        tables.clear()  # free them before sending the shards, which copies them
        yield from shards

    def _new_tables(self) -> dict[int, CountTable]:
        """Return an empty table for each distinct weight of the sources."""
        rules = self.rules
        weights = {source.weight for source in rules.sources}
        return {weight: new_table(rules.pretokenizer, rules.scanner, weight, self.units) for weight in weights}

    def _count(self, chunk: Chunk, buffer: ChunkBuffer, table: CountTable) -> DocumentStatistics:
        """Count a chunk: as much as possible in one pass, the rest document by document.

        With a normalizer, that is all of a chunk in ASCII, or nothing.
        """
        opened = open_chunk(chunk, self.rules, buffer)
        data, delimiters = opened.data, opened.delimiters
        normalizer = self.rules.pretokenizer.normalizer
        at_once = not normalizer or normalizer.keeps_ascii(bytes(data).replace(delimiters.record_end or b"", b""))
        done = table.count_documents(data, delimiters) if at_once else CountedDocuments()
        documents, skipped = done.documents - (done.open and not chunk.ends_file), 0
        if done.bytes < len(data):
            rest = opened.after(done.bytes)
            try:
                for number, (document, texts) in enumerate(rest.documents()):  # noqa: B007 (used below)
                    documents += document.closed or chunk.ends_file
                    skipped += texts is None
                    for text in filter(None, texts or ()):
                        table.count(normalizer.utf8(text))
            except UnmatchedTextError:
                raise opened.unmatched_error() from None
            except PatternTimeoutError as error:
                raise rest.timeout_error(error, number, document) from None
        statistics = opened.statistics(documents, skipped)
        return statistics if len(self.rules.sources) == 1 else statistics.of_source(chunk.source)

    def _shards(self, tables: Collection[CountTable], statistics: DocumentStatistics, spill: bool) -> list[Shard]:
        statistics = sum((table.statistics for table in tables), start=statistics)
        shards = []
        for table in tables:
            shard = table.shard(self.scratch.new_path("counter") if spill and len(table) else None)
            shards.append(replace(shard, statistics=statistics))
            statistics = DocumentStatistics()
        return list(divide_shards(shards, self.mergers))
