"""The counter: chunks of text in, runs of pre-token counts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal

from bpeflow.corpus import Chunk, ChunkBuffer, Delimiters, DocumentStatistics, InvalidUtf8Policy, decode_chunk
from bpeflow.counting.memory import Memory
from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Scratch
from bpeflow.counting.table import CountTable, new_table
from bpeflow.pretokenize import Pretokenizer


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
        threads: how many of them count, with a table each: where there is one worker only, and the scanner is native,
            which leaves the interpreter to others while it is at work.
    """

    delimiters: Delimiters
    pretokenizer: Pretokenizer
    scanner: Literal["native", "regex"]
    invalid_utf8: InvalidUtf8Policy
    partitions: int
    memory: Memory
    scratch: Scratch
    threads: int = 1

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[CountRun]:
        if self.threads == 1:
            yield from self._count_all(chunks)
            return
        shared = _Shared(chunks)
        with ThreadPoolExecutor(self.threads, "counter") as pool:
            try:
                for counted in [pool.submit(self._count_share, shared) for _ in range(self.threads)]:
                    yield from counted.result()
            finally:  # after a failure, or Ctrl-C, the threads end with the chunk that they have
                shared.end()

    def _count_share(self, chunks: _Shared) -> list[CountRun]:
        try:
            return list(self._count_all(chunks))
        except BaseException:
            chunks.end()
            raise

    def _count_all(self, chunks: Iterable[Chunk]) -> Iterator[CountRun]:
        table = new_table(self.pretokenizer, self.scanner)
        statistics = DocumentStatistics()
        buffer = ChunkBuffer()
        most_new = 0  # pre-tokens that a chunk has brought: what the next one may bring
        spilled = False
        for chunk in chunks:
            before = len(table)
            statistics += self._count(chunk, buffer.read(chunk), table)
            most_new = max(most_new, len(table) - before)
            if table.memory(most_new) > self.memory.counter:
                runs = self._runs(table, statistics, spill=True)
                table, statistics = new_table(self.pretokenizer, self.scanner), DocumentStatistics()
                spilled = True
                yield from runs
        runs = self._runs(table, statistics, spilled or table.memory(0) > self.memory.largest_sent_table)
        del table  # before the runs are copied on their way
        yield from runs

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

    def _runs(self, table: CountTable, statistics: DocumentStatistics, spill: bool) -> list[CountRun]:
        runs = [
            table.run(partition, self.partitions, self.scratch.new_path("counter") if spill else None)
            for partition in range(self.partitions)
        ]
        return [replace(runs[0], statistics=statistics), *runs[1:]]


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
