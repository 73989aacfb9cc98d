"""The counter stage: chunks of text in, shards of pre-token counts out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Condition, Event, Lock
from typing import Literal

from bpeflow._util.text import InvalidUtf8Policy
from bpeflow.corpus.chunk import Chunk, StreamChunk
from bpeflow.corpus.delimiters import Delimiters
from bpeflow.corpus.documents import ChunkBuffer, DocumentStatistics, decode_chunk
from bpeflow.corpus.formats.jsonl import parse_lines
from bpeflow.corpus.formats.records import Records, record_delimiters
from bpeflow.corpus.formats.stdin import CancelledError
from bpeflow.corpus.sources import Source
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.shards import Scratch, Shard
from bpeflow.counting.table import CountTable, new_table
from bpeflow.pretokenize.regex import Pretokenizer


@dataclass(frozen=True)
class ChunkCounter:
    """The picklable stage function of a counter.

    When its table reaches the counter's share of the memory limit, the counter spills it, in one file per partition,
    and continues with an empty table. Frequent pre-tokens then occur in several files, but most pre-tokens are rare and
    do not.

    Attributes:
        delimiters: separator and special tokens, removed before pre-tokenization.
        pretokenizer: the pattern.
        scanner: how matches of the pattern are found.
        invalid_utf8: what to do with input that is not UTF-8.
        partitions: number of mergers that share the counts.
        memory: the memory limit's shares.
        scratch: where to spill.
        sources: description of each source, by its index.
        threads: number of counting threads, each with a table of its own. Above 1 only if there is no other worker and
            the scanner is native, as native code runs without the interpreter's lock.
        cancelled: given if chunks are to be taken from their iterator in the calling thread only. Ctrl-C then need not
            wait for a thread that is blocked on input, and iterables of the caller, which may be bound to its thread,
            stay there. The event is set when a thread fails, to wake up whoever waits for input.
    """

    delimiters: Delimiters
    pretokenizer: Pretokenizer
    scanner: Literal["native", "regex"]
    invalid_utf8: InvalidUtf8Policy
    partitions: int
    memory: MemoryBudget
    scratch: Scratch
    sources: Sequence[Source] = (Source(),)
    threads: int = 1
    cancelled: Event | None = None

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[Shard]:
        """Count chunks. Yield shards when the table is spilled and when the input ends."""
        if self.threads == 1:
            yield from self._count_all(chunks)
            return
        shared = _ChunkQueue(self.threads, self.cancelled) if self.cancelled else _SharedChunks(chunks)
        with ThreadPoolExecutor(self.threads, "counter") as pool:
            try:
                counting = [pool.submit(self._count_share, shared) for _ in range(self.threads)]
                if isinstance(shared, _ChunkQueue):
                    shared.put_all(chunks)
                for counted in counting:
                    yield from counted.result()
            finally:  # after a failure or Ctrl-C each thread finishes its chunk and ends
                shared.end()

    def _count_share(self, chunks: _SharedChunks | _ChunkQueue) -> list[Shard]:
        try:
            return list(self._count_all(chunks))
        except BaseException:
            chunks.end()
            raise

    def _count_all(self, chunks: Iterable[Chunk]) -> Iterator[Shard]:
        tables = self._new_tables()
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        most_new = 0  # the most new pre-tokens in a chunk so far: an estimate for the next chunk
        spilled = False
        for chunk in chunks:
            table = tables[self.sources[chunk.source].weight]
            before = len(table)
            statistics += self._count(chunk, buffer.read(chunk), table)
            most_new = max(most_new, len(table) - before)
            if sum(table.memory(most_new) for table in tables.values()) > self.memory.counter:
                shards = self._shards(tables, statistics, spill=True)
                tables, statistics = self._new_tables(), DocumentStatistics()
                spilled = True
                yield from shards
        memory = sum(table.memory(0) for table in tables.values())
        shards = self._shards(tables, statistics, spilled or memory > self.memory.largest_sent_table)
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
        records = Records(chunk.data, chunk.skipped)
        if chunk.holds == "jsonl":
            records = parse_lines(chunk, self.sources[chunk.source].text_field, self.invalid_utf8)
        text = replace(chunk, length=len(records.data))
        counted = self._count_text(text, memoryview(records.data), table, self._record_delimiters)
        return DocumentStatistics(
            counted.documents + records.skipped, records.skipped, counted.bytes - counted.documents
        )

    @cached_property
    def _record_delimiters(self) -> Delimiters:
        return record_delimiters(self.delimiters)

    def _count_text(
        self, chunk: Chunk, data: memoryview, table: CountTable, delimiters: Delimiters
    ) -> DocumentStatistics:
        """Count a chunk of text: as much as possible in one pass, the rest document by document."""
        done = table.count_documents(data, delimiters)
        complete = done.documents - (done.open and not chunk.ends_file)
        statistics = DocumentStatistics(complete, bytes=done.bytes)
        if done.bytes < chunk.length:
            rest = replace(chunk, offset=chunk.offset + done.bytes, length=chunk.length - done.bytes)
            decoded = decode_chunk(bytes(data[done.bytes :]), rest, delimiters, self.invalid_utf8)
            statistics += decoded.statistics
            for text in decoded.texts:
                table.count(text)
        return statistics

    def _shards(self, tables: Mapping[int, CountTable], statistics: DocumentStatistics, spill: bool) -> list[Shard]:
        shards = [
            self._shard(table, weight, partition, spill)
            for weight, table in tables.items()
            for partition in range(self.partitions)
        ]
        return [replace(shards[0], statistics=statistics), *shards[1:]]

    def _shard(self, table: CountTable, weight: int, partition: int, spill: bool) -> Shard:
        path = self.scratch.new_path("counter") if spill else None
        if weight == 1:
            return table.shard(partition, self.partitions, path)
        shard = table.shard(partition, self.partitions)
        weighted = ((token, count * weight) for token, count in shard.items())
        return Shard.pack(partition, weighted, path if len(shard) else None)


class _SharedChunks(Iterator[Chunk]):
    """An iterator of chunks that several threads share. Each chunk goes to one of them."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = iter(chunks)
        self._lock = Lock()
        self._ended = False

    def __next__(self) -> Chunk:
        with self._lock:
            if self._ended:
                raise StopIteration
            return next(self._chunks)

    def end(self) -> None:
        """Hand out no further chunks."""
        self._ended = True


class _ChunkQueue(Iterator[Chunk]):
    """A queue of at most `room` chunks that one thread fills and several threads empty, as an iterator."""

    def __init__(self, room: int, cancelled: Event) -> None:
        self._chunks: deque[Chunk] = deque()
        self._room = room
        self._changed = Condition()
        self._complete = self._ended = False
        self._cancelled = cancelled

    def put_all(self, chunks: Iterable[Chunk]) -> None:
        """Fill the queue. Returns when all chunks have been added, or `end` has been called."""
        with suppress(CancelledError):
            for chunk in chunks:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or len(self._chunks) < self._room)
                    if self._ended:
                        return
                    self._chunks.append(chunk)
                    self._changed.notify_all()
        with self._changed:
            self._complete = True
            self._changed.notify_all()

    def __next__(self) -> Chunk:
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._complete or self._ended)
            if self._ended or not self._chunks:
                raise StopIteration
            self._changed.notify_all()
            return self._chunks.popleft()

    def end(self) -> None:
        """Hand out no further chunks."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._cancelled.set()
