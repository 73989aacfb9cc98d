"""How much memory counting may take, and how the processes share it.

The limit is for what grows with the number of distinct pre-tokens: the counters' tables, and the runs that the mergers
hold and sort. On top of it come what does not grow: the processes themselves (some 30 MB each), the text under way (a
chunk for each counter, which is made small against the counter's share); and the result, which is the caller's: 16
bytes and its own for each distinct pre-token, and as much again for a moment while its sums are told.

Tables grow by doubling, and are looked at between chunks. So a table is handed on when it *would* take more than its
share if it had to grow for the next chunk, as a rule at half of the share or more.

Counters and mergers take turns. While there are counters the mergers only keep what they are sent, most of it names of
files; they begin to merge when the last counter has ended. So each of the two stages gets three quarters of the limit,
and the last quarter is for what one holds of the other's: a counter hands on its last run in memory while its table has
not filled more than half of its share, and such a run takes less than half of the table's memory (32 bytes for a slot,
of which at most 60 % are used, against 12 bytes and its own for a short pre-token; long ones stand in both in full).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bpeflow.corpus.reader import LONGEST_TEXT

#: No process gets by with less than this: the smallest tables and buffers together.
LEAST_SHARE = 1 << 20

#: The smallest chunks that are worth their way through the queue.
LEAST_CHUNK = 1 << 16

#: The size of a table against that of the text that filled it, at most: with a new pre-token every five bytes, and up
#: to 160 bytes of table for each while it grows.
_TABLE_TO_TEXT = 32

#: Files that a merger reads at a time. More are merged in several runner: far from the number of files that a process
#: may have open (often 1024), and enough that a second pass is rare.
MAX_OPEN_SHARDS = 128

#: What is read of a file at a time. With less the disk is asked for small pieces, with more nothing is gained.
_LEAST_BUFFER, _LARGEST_BUFFER = 1 << 14, 1 << 16


@dataclass(frozen=True)
class MemoryBudget:
    """The shares of a memory limit, in bytes.

    Attributes:
        counter: for a counter's table, with what it takes to grow and to be sorted.
        merger: for a merger's runs, buffers and sorting.
    """

    counter: int
    merger: int

    @classmethod
    def share(cls, limit: int, counters: int, mergers: int) -> MemoryBudget:
        """Share `limit` bytes among so many processes."""
        stage = limit * 3 // 4
        return cls(max(stage // counters, LEAST_SHARE), max(stage // mergers, LEAST_SHARE))

    def chunk_size(self, wanted: int) -> int:
        """The size of chunks: so small that a chunk alone cannot fill the table."""
        return min(wanted, max(self.counter // _TABLE_TO_TEXT, LEAST_CHUNK))

    @property
    def longest_text(self) -> int:
        """The longest piece of text that is taken although it cannot be divided: it is copied to be looked at."""
        return max(self.counter // 4, LONGEST_TEXT)

    @property
    def queued_text(self) -> int:
        """The text that may wait for the counters where it travels with its chunks."""
        return max(self.counter, LEAST_SHARE)

    @property
    def largest_sent_table(self) -> int:
        """The table, by its memory, from which on a counter writes its last runs to files instead of sending them."""
        return self.counter // 2

    @property
    def largest_sent_result(self) -> int:
        """The result, by its bytes, that a merger sends instead of writing it: it is copied on its way."""
        return self.merger // 8

    def sorting(self, held: int) -> int:
        """What a merger that holds runs of so many bytes may gather for sorting, buffers left out."""
        return max(self.merger * 3 // 4 - held, self.merger // 4)

    def open_shards(self, most: int = MAX_OPEN_SHARDS) -> int:
        """How many files a merger may read at a time; their buffers have a quarter of its share."""
        return max(2, min(most, self.merger // 4 // _LEAST_BUFFER))

    def buffer_size(self, files: int) -> int:
        """What a merger reads at a time of each of so many files."""
        return min(max(self.merger // 4 // max(files, 1), _LEAST_BUFFER), _LARGEST_BUFFER)


def default_limit() -> int:
    """Half of the memory that is available here: others want some, and what comes on top of the limit."""
    return min([_available(), *_control_group_limits(), *_process_limits()]) // 2


def _available(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What the system could give without swapping."""
    try:
        return int(meminfo.read_text().partition("MemAvailable:")[2].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        import psutil  # asks in every system's own way, but is slow to import

        return int(psutil.virtual_memory().available)


def _control_group_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """The limits that Linux's control groups, of version 2 or 1, set to this process and those above it."""
    try:
        groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    files = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if not controllers:
            group = root / path.lstrip("/")
            files += [folder / "memory.max" for folder in (group, *group.parents) if folder.is_relative_to(root)]
        elif "memory" in controllers.split(","):
            files += [root / "memory" / part / "memory.limit_in_bytes" for part in (path.lstrip("/"), "")]
    return [limit for file in files if (limit := _read_limit(file)) is not None]


def _process_limits() -> list[int]:
    """What the limits of a process (``ulimit -v`` and ``-d``, which some schedulers set) leave to this one."""
    try:
        import resource  # not on every platform

        sizes = [int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()]
    except (ImportError, OSError, ValueError):
        return []
    limits = ((resource.RLIMIT_AS, sizes[0]), (resource.RLIMIT_DATA, sizes[5]))
    return [max(most - taken, 0) for limit, taken in limits if (most := resource.getrlimit(limit)[0]) >= 0]


def _read_limit(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # there is none, or it says "max"
        return None
