"""The counter: chunks of text in, runs of pre-token counts out."""

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
    """What each counter worker runs: a stage function, picklable.

    When the memory that its table takes reaches its share, a counter writes the table to files, one for each
    partition, and begins with an empty one. Frequent pre-tokens come again, but most are rare and do not.

    Attributes:
        delimiters: separator and special tokens, taken out before pre-tokenization.
        pretokenizer: the pattern.
        scanner: what finds its matches.
        invalid_utf8: what to do with input that is not UTF-8.
        partitions: how many mergers share the counts.
        memory: what the table may take.
        scratch: where it may be written.
        sources: what there is to know of the sources, by their numbers.
        threads: how many of them count, with a table each: where there is one worker only, and the scanner is native,
            which leaves the interpreter to others while it is at work.
        cancelled: to have chunks taken from where they come from in the calling thread alone: so it does not wait, as
            after Ctrl-C, for threads that wait for input; and the caller's own iterables may want to stay there. Is set
            when a thread has failed, for those who wait for input.
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
        if self.threads == 1:
            yield from self._count_all(chunks)
            return
        shared = _HandedOut(self.threads, self.cancelled) if self.cancelled else _Shared(chunks)
        with ThreadPoolExecutor(self.threads, "counter") as pool:
            try:
                counting = [pool.submit(self._count_share, shared) for _ in range(self.threads)]
                if isinstance(shared, _HandedOut):
                    shared.hand_out(chunks)
                for counted in counting:
                    yield from counted.result()
            finally:  # after a failure, or Ctrl-C, the threads end with the chunk that they have
                shared.end()

    def _count_share(self, chunks: _Shared | _HandedOut) -> list[Shard]:
        try:
            return list(self._count_all(chunks))
        except BaseException:
            chunks.end()
            raise

    def _count_all(self, chunks: Iterable[Chunk]) -> Iterator[Shard]:
        tables = self._new_tables()
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        most_new = 0  # pre-tokens that a chunk has brought: what the next one may bring
        spilled = False
        for chunk in chunks:
            table = tables[self.sources[chunk.source].weight]
            before = len(table)
            statistics += self._count(chunk, buffer.read(chunk), table)
            most_new = max(most_new, len(table) - before)
            if sum(table.memory(most_new) for table in tables.values()) > self.memory.counter:
                runs = self._runs(tables, statistics, spill=True)
                tables, statistics = self._new_tables(), DocumentStatistics()
                spilled = True
                yield from runs
        memory = sum(table.memory(0) for table in tables.values())
        runs = self._runs(tables, statistics, spilled or memory > self.memory.largest_sent_table)
        tables.clear()  # before the runs are copied on their way
        yield from runs

    def _new_tables(self) -> dict[int, CountTable]:
        """An empty table for each weight that a source has."""
        return {source.weight: new_table(self.pretokenizer, self.scanner) for source in self.sources}

    def _count(self, chunk: Chunk, data: memoryview, table: CountTable) -> DocumentStatistics:
        """Count a chunk, of text or of records, and tell what it consisted of."""
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
        """Count a chunk of text: all at once as far as that goes, the rest document by document."""
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

    def _runs(self, tables: Mapping[int, CountTable], statistics: DocumentStatistics, spill: bool) -> list[Shard]:
        runs = [
            self._run(table, weight, partition, spill)
            for weight, table in tables.items()
            for partition in range(self.partitions)
        ]
        return [replace(runs[0], statistics=statistics), *runs[1:]]

    def _run(self, table: CountTable, weight: int, partition: int, spill: bool) -> Shard:
        path = self.scratch.new_path("counter") if spill else None
        if weight == 1:
            return table.run(partition, self.partitions, path)
        run = table.run(partition, self.partitions)
        weighted = ((token, count * weight) for token, count in run.items())
        return Shard.pack(partition, weighted, path if len(run) else None)


class _Shared(Iterator[Chunk]):
    """Chunks for several threads, each chunk for one of them."""

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
        """Give no more."""
        self._ended = True


class _HandedOut(Iterator[Chunk]):
    """Chunks for several threads, which one thread takes from where they come from; `room` of them wait at most."""

    def __init__(self, room: int, cancelled: Event) -> None:
        self._chunks: deque[Chunk] = deque()
        self._room = room
        self._changed = Condition()
        self._complete = self._ended = False
        self._given_up = cancelled

    def hand_out(self, chunks: Iterable[Chunk]) -> None:
        """Take all chunks, and return when the last one has been handed out, or `end` was called."""
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
        """Give no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._given_up.set()
