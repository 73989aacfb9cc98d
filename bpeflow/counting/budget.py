"""The memory limit of counting, and how counters and mergers share it.

The limit covers the memory that grows with the number of distinct pre-tokens: the counters' tables, the shards that
mergers hold, and their sums. It does not cover:

* the processes themselves, about 30 MB each;
* the text in flight, which is one chunk per counter; chunks are small compared to a counter's share;
* for superwords, a cache of 64 MB, and up to 32 MB for each counter;
* the result, which belongs to the caller: 16 bytes plus its own length per distinct pre-token, and temporarily as much
  again while its totals are computed.

Tables grow by doubling, and their size is checked between chunks. A table is therefore sent on or spilled as soon as it
*would* exceed the counter's share if it had to grow during the next chunk, usually at half of the share or more.

Counters and mergers take turns. While counters run, mergers only collect shards, most of which are names of files. They
start summing when the last counter has ended. So each of the two stages gets three quarters of the limit.

The remaining quarter is for the data that one stage holds of the other. A counter sends its last shards in memory only
if its table fills at most half of the counter's share. Such shards take less than half of the table's memory: of a
pre-token of 8 bytes, 20 in the shard (12 plus its length), and 47 or more in the table (at least 11 in the index, 20 in
its record, and 16 to sort it). They take more only if pre-tokens, which are stored in full in both, have more than
about 16 bytes on average. Counters in the same process as the reducer leave such a table to it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The smallest share of a process: the smallest tables and buffers together.
MIN_SHARE = 1 << 20

#: The smallest chunk size. Smaller chunks are not worth the cost of their way through the queue.
MIN_CHUNK = 1 << 16

#: Upper bound for the size of a table relative to the text that filled it: a new pre-token every five bytes, and up to
#: 160 bytes of table for each while the table grows.
_TABLE_TO_TEXT = 32

#: Bytes read of a file at a time: as few as memory allows, if there are many files. Smaller reads are slow on disks and
#: shared storage, as each opens the file, larger ones gain nothing.
_MIN_BUFFER, _MAX_BUFFER = 1 << 10, 1 << 18


@dataclass(frozen=True)
class MemoryBudget:
    """The shares of a memory limit, in bytes.

    Attributes:
        counter: for a counter's table, including growth and sorting. As many bytes of chunks that carry their text may
            be queued for all counters.
        merger: for a merger's shards, buffers and sums.
    """

    counter: int
    merger: int

    @classmethod
    def share(cls, limit: int, counters: int, mergers: int) -> MemoryBudget:
        """Share `limit` bytes among this number of counters and mergers."""
        stage = limit * 3 // 4
        return cls(max(stage // counters, MIN_SHARE), max(stage // mergers, MIN_SHARE))

    def chunk_size(self, wanted: int) -> int:
        """Return the chunk size: `wanted`, or less if a single chunk of that size could fill the table."""
        return min(wanted, max(self.counter // _TABLE_TO_TEXT, MIN_CHUNK))

    @property
    def largest_sent_table(self) -> int:
        """Maximum size of a table whose last shards are sent in memory. Those of a larger one are spilled."""
        return self.counter // 2

    @property
    def largest_sent_result(self) -> int:
        """Maximum size of a merger's sums that are sent in memory, as sending copies them. Others go to files."""
        return self.merger // 8

    def buffer_size(self, files: int) -> int:
        """Return the size of the buffer of each of `files` files that a merger reads at the same time."""
        return min(max(self.merger // 4 // max(files, 1), _MIN_BUFFER), _MAX_BUFFER)
