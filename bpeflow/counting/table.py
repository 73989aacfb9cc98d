"""Count tables: distinct pre-tokens and how often each occurs.

`RegexTable`, on the `regex` module, is the definition. `NativeTable` has the same methods and must give the same
counts. It is about fifty times as fast, and supports the patterns that can be compiled. `SharedTables` adds up the
native tables of counters in the same process, and sorts them (source: ``ext/count/sum.hpp``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ctypes import Array, byref, c_char, c_uint32, c_uint64
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from bpeflow._util import native
from bpeflow._util.native import Handle, load_library
from bpeflow.corpus.documents import NOTHING, Delimiters, DocumentStatistics
from bpeflow.counting.shards import PARTITIONS, RECORD, Shard
from bpeflow.errors import UnmatchedTextError
from bpeflow.pretokenize.native import Scanner, chosen_instructions, new_pattern, why_not_compiled
from bpeflow.pretokenize.regex import Pretokenizer, load_pretokenizer, show_unmatched

if TYPE_CHECKING:
    from bpeflow.counting.canonical import Arrays
    from bpeflow.counting.units import Units

#: Estimated bytes per distinct pre-token in a dictionary, as a string and a number, including sorting and packing.
_REGEX_ENTRY = 400


class CountedDocuments(NamedTuple):
    """The part of a chunk, from its start, that was counted.

    Attributes:
        bytes: length of the part.
        documents: number of documents in it.
        open: whether the last document ends with the chunk, without a separator.
    """

    bytes: int = 0
    documents: int = 0
    open: bool = False


class RegexTable:
    """The definition: a dictionary of the matches of the `regex` module.

    Attributes:
        statistics: how much of the text a custom pattern has matched so far. All other figures are 0.
    """

    def __init__(self, pretokenizer: Pretokenizer, weight: int = 1) -> None:
        self._pretokenizer = pretokenizer
        self._weight = weight
        self._counts: Counter[str] = Counter()
        self.statistics = NOTHING

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens."""
        return len(self._counts)

    def count(self, text: bytes) -> None:
        """Count the pre-tokens of a text in valid UTF-8.

        Raises `UnmatchedTextError` if the pattern does not match all of the text, and is not to be used for such text.
        """
        decoded = text.decode()
        pretokens, unmatched = self._pretokenizer.split(decoded)
        self._counts.update(pretokens)
        if self._pretokenizer.custom:
            size = len("".join(unmatched).encode())
            shown = not size or self.statistics.unmatched_example
            first = None if shown else self._pretokenizer.find_unmatched(decoded)
            self.statistics += DocumentStatistics(
                matched_bytes=len(text) - size, unmatched_bytes=size, unmatched_example=first.example if first else ""
            )

    def count_documents(self, data: memoryview, delimiters: Delimiters) -> CountedDocuments:  # noqa: ARG002
        """Count the pre-tokens of documents in one pass, up to the first document that is not valid UTF-8.

        An implementation may stop earlier, or count nothing. The caller decodes the rest and counts it with `count`.
        """
        return CountedDocuments()

    def memory(self, more: int) -> int:
        """Return an upper bound in bytes with `more` pre-tokens added, including growth and sorting."""
        return (len(self._counts) + more) * _REGEX_ENTRY

    def shard(self, path: Path | None = None) -> Shard:
        """Return the counts, in a new file if `path` is given and there are any.

        Raises `ScratchError` if it cannot be written, and `CountOverflowError` if a count does not fit 64 bits.
        """
        return Shard.pack(((text.encode(), count * self._weight) for text, count in self._counts.items()), path)


def _native_delimiters(delimiters: Delimiters) -> native.Delimiters:
    lengths = (c_uint32 * len(delimiters.all))(*map(len, delimiters.all))
    return native.Delimiters(b"".join(delimiters.all), lengths, len(delimiters.all), delimiters.separator_index)


def _example(text: bytes | Array[c_char], counted: native.Documents) -> str:
    """Return the first unmatched text, and the text around it."""
    bounds = (counted.piece_start, counted.unmatched_start, counted.unmatched_end, counted.piece_end)
    before, unmatched, after = (bytes(memoryview(text)[start:end]).decode() for start, end in pairwise(bounds))
    return show_unmatched(before + unmatched + after, len(before), len(before + unmatched)).example


class NativeTable:
    """A table in native memory. Its handle is freed together with the object.

    Attributes:
        handle: the native handle.
        statistics: as in `RegexTable`.
    """

    def __init__(
        self,
        pattern: str | Pretokenizer = "gpt2",
        instructions: str | None = None,
        weight: int = 1,
        units: Units | None = None,
    ) -> None:
        """Create an empty table.

        Args:
            pattern: a named pattern, or a pre-tokenizer.
            instructions: one of `native_instructions`; by default `chosen_instructions`.
            weight: how often each occurrence counts.
            units: count cells of their pairs, or fragments, instead of pre-tokens.

        Raises `ValueError` if the pattern cannot be compiled.
        """
        self._library = load_library("count")
        self._pretokenizer = load_pretokenizer(pattern) if isinstance(pattern, str) else pattern
        self._pattern = new_pattern("count", self._pretokenizer)
        if self._pattern is None:
            raise ValueError(why_not_compiled(self._pretokenizer))
        self.statistics = NOTHING
        instructions = instructions or chosen_instructions()
        self.handle = Handle(self._library, "table", instructions.encode(), units and units.handle, weight)

    def free(self) -> None:
        """Free the table, which can no longer be used."""
        for handle in filter(None, (self.handle, self._pattern)):
            handle.free()

    def __len__(self) -> int:
        return self._size()[0]

    def count(self, text: bytes) -> None:
        _, unmatched = self._count(text, len(text), native.Delimiters())
        if unmatched:
            raise UnmatchedTextError("the pattern does not match all text")

    def count_documents(self, data: memoryview, delimiters: Delimiters) -> CountedDocuments:
        # Unmatched text is an error that `count` will raise for the document after those counted.
        counted, _ = self._count((c_char * len(data)).from_buffer(data), len(data), _native_delimiters(delimiters))
        return CountedDocuments(counted.bytes, counted.documents, bool(counted.open))

    def _count(
        self, text: bytes | Array[c_char], size: int, delimiters: native.Delimiters
    ) -> tuple[native.Documents, bool]:
        """Count documents. Return what was counted, and whether it ended at text that may not be left unmatched."""
        counted = native.Documents()
        function = self._library.bpeflow_table_count
        status = function(self.handle, self._pattern, byref(delimiters), text, size, byref(counted))
        if status != native.UNMATCHED:
            native.check_status(status, function)
        if self._pretokenizer.custom:
            shown = not counted.unmatched or self.statistics.unmatched_example
            self.statistics += DocumentStatistics(
                matched_bytes=counted.searched - counted.unmatched,
                unmatched_bytes=counted.unmatched,
                unmatched_example="" if shown else _example(text, counted),
            )
        return counted, status == native.UNMATCHED

    def memory(self, more: int) -> int:
        size = c_uint64()
        self._library.bpeflow_table_memory(self.handle, more, byref(size))
        return size.value

    def shard(self, path: Path | None = None) -> Shard:
        tokens, size = self._size()
        if not tokens:
            return Shard.pack(())
        write = partial(self._library.bpeflow_table_write, self.handle, PARTITIONS)
        return Shard.written(write, range(PARTITIONS), size + tokens * RECORD.size, path)

    def _size(self) -> tuple[int, int]:
        tokens, size = c_uint64(), c_uint64()
        self._library.bpeflow_table_size(self.handle, byref(tokens), byref(size))
        return tokens.value, size.value


#: Distinct pre-tokens and their counts.
CountTable = RegexTable | NativeTable


def new_table(pretokenizer: Pretokenizer, scanner: Scanner, weight: int = 1, units: Units | None = None) -> CountTable:
    """Return an empty table that finds pre-tokens with `scanner`, which must be native if there are `units`.

    Each occurrence counts `weight` times.
    """
    if scanner == "native":
        return NativeTable(pretokenizer, weight=weight, units=units)
    return RegexTable(pretokenizer, weight)


# ---- tables of counters in the same process ----


class SharedTables:
    """The last tables of counters, for the reducer in the same process: they need not be sorted and copied first.

    Attributes:
        statistics: statistics of the documents counted in them.
    """

    def __init__(self, threads: int = 1) -> None:
        self.statistics = DocumentStatistics()
        self._tables: list[NativeTable] = []
        self._threads = threads
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, tables: Iterable[NativeTable], statistics: DocumentStatistics) -> None:
        """Add a counter's tables, in which nothing is counted any more."""
        with self._lock:
            for table in tables:
                self._tables.append(table)
                statistics += table.statistics
            self.statistics += statistics

    def shards(self) -> list[Shard]:
        """Return the tables as shards."""
        return [table.shard() for table in self._tables]

    def join(self) -> Arrays:
        """Return the sum of the tables, which are freed, as the arrays of `PretokenCounts`.

        Faster than the sum of shards, because pre-tokens are sorted only once, after all tables have been added up.
        Raises `CountOverflowError`.
        """
        from bpeflow.counting.canonical import sum_of_tables  # numpy, which workers do without

        tables, self._tables = self._tables, []
        arrays = sum_of_tables([table.handle for table in tables], self._threads)
        for table in tables:
            table.free()
        return arrays
