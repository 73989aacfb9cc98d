"""Count tables: distinct pre-tokens and how often each occurs.

`CountTable` has two implementations. `RegexTable`, on the `regex` module, is the definition. `NativeTable` must give
the same counts. It supports the named patterns only, and is about fifty times as fast.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from ctypes import byref, c_char, c_uint32, c_uint64
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from zlib import crc32

from bpeflow._util import native
from bpeflow.corpus.documents import Delimiters, DocumentStatistics
from bpeflow.counting.native_kway import address
from bpeflow.counting.shards import RECORD, Shard, explain_write_error
from bpeflow.pretokenize.native import NATIVE_PATTERNS, chosen_instructions
from bpeflow.pretokenize.regex import Pretokenizer

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


class CountTable(Protocol):
    """Distinct pre-tokens and their counts."""

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens."""
        ...

    def count(self, text: bytes) -> None:
        """Count the pre-tokens of a text in valid UTF-8.

        Raises `UnmatchedTextError` if the pattern does not match all of the text, and is not to be used for such text.
        """
        ...

    def statistics(self) -> DocumentStatistics:
        """Return how much of the text a custom pattern has matched so far. All other figures are 0."""
        ...

    def count_documents(self, data: memoryview, delimiters: Delimiters) -> CountedDocuments:
        """Count the pre-tokens of documents in one pass, up to the first document that is not valid UTF-8.

        An implementation may stop earlier, or count nothing. The caller decodes the rest and counts it with `count`.
        """
        ...

    def add(self, shard: Shard) -> None:
        """Add the counts of a shard.

        Raises `CountOverflowError`, here or in `shard`, if a sum does not fit 64 bits.
        """
        ...

    def memory(self, more: int) -> int:
        """Return an upper bound in bytes with `more` pre-tokens added, including growth and sorting."""
        ...

    def shard(self, partition: int = 0, partitions: int = 1, path: Path | None = None) -> Shard:
        """Return a partition as a shard, in ascending order of bytes.

        Each pre-token belongs to one of `partitions` partitions, the same in every process. The shard is written to a
        new file if `path` is given and the partition is not empty. Raises `ScratchError` if writing fails.
        """
        ...


def new_table(pretokenizer: Pretokenizer, scanner: Literal["native", "regex"]) -> CountTable:
    """Return an empty table that finds pre-tokens with `scanner`."""
    return NativeTable(pretokenizer.name) if scanner == "native" else RegexTable(pretokenizer)


class RegexTable:
    """The definition: a dictionary of the matches of the `regex` module."""

    def __init__(self, pretokenizer: Pretokenizer) -> None:
        self._pretokenizer = pretokenizer
        self._counts: Counter[str] = Counter()
        self._bytes = self._unmatched_bytes = 0
        self._example = ""

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, text: bytes) -> None:
        decoded = text.decode()
        pretokens, unmatched = self._pretokenizer.split(decoded)
        self._counts.update(pretokens)
        self._bytes += len(text)
        if unmatched:
            self._unmatched_bytes += len("".join(unmatched).encode())
            if not self._example and (first := self._pretokenizer.find_unmatched(decoded)):
                self._example = first.example

    def statistics(self) -> DocumentStatistics:
        if not self._pretokenizer.custom:
            return DocumentStatistics()
        return DocumentStatistics(
            matched_bytes=self._bytes - self._unmatched_bytes,
            unmatched_bytes=self._unmatched_bytes,
            unmatched_example=self._example,
        )

    def count_documents(self, data: memoryview, delimiters: Delimiters) -> CountedDocuments:  # noqa: ARG002
        return CountedDocuments()

    def add(self, shard: Shard) -> None:
        for token, count in shard.items():
            self._counts[token.decode()] += count

    def memory(self, more: int) -> int:
        return (len(self._counts) + more) * _REGEX_ENTRY

    def shard(self, partition: int = 0, partitions: int = 1, path: Path | None = None) -> Shard:
        encoded = ((text.encode(), count) for text, count in self._counts.items())
        items = [item for item in encoded if partitions == 1 or crc32(item[0]) % partitions == partition]
        items.sort(key=itemgetter(0))
        return Shard.pack(partition, items, path if items else None)


def _native_delimiters(delimiters: Delimiters) -> native.Delimiters:
    lengths = (c_uint32 * len(delimiters.all))(*map(len, delimiters.all))
    return native.Delimiters(b"".join(delimiters.all), lengths, len(delimiters.all), delimiters.separator_index)


class NativeTable:
    """A table in native memory. Its handle is freed together with the object."""

    def __init__(self, pattern: str = "gpt2", instructions: str | None = None) -> None:
        """Create an empty table.

        Args:
            pattern: a named pattern.
            instructions: one of `native_instructions`; by default `chosen_instructions`.
        """
        self._library = native.load_library("count")
        self._pattern = NATIVE_PATTERNS[pattern]
        self._handle = native.Handle(self._library, "table", (instructions or chosen_instructions()).encode())

    @property
    def handle(self) -> int:
        """The native handle, which is valid as long as the object."""
        return self._handle.value or 0

    def __len__(self) -> int:
        return self._size(0, 1)[0]

    def count(self, text: bytes) -> None:
        self._library.bpeflow_table_count(self._handle, self._pattern, text, len(text))

    def count_documents(self, data: memoryview, delimiters: Delimiters) -> CountedDocuments:
        text = (c_char * len(data)).from_buffer(data)
        counted = native.Documents()
        self._library.bpeflow_table_count_documents(
            self._handle, self._pattern, byref(_native_delimiters(delimiters)), text, len(data), byref(counted)
        )
        return CountedDocuments(counted.bytes, counted.documents, bool(counted.open))

    def statistics(self) -> DocumentStatistics:
        return DocumentStatistics()

    def add(self, shard: Shard) -> None:
        items = list(shard.items())
        lengths = array("I", [len(token) for token, _ in items])
        counts = array("q", [count for _, count in items])
        data = b"".join(token for token, _ in items)
        self._library.bpeflow_table_add(self._handle, data, lengths.tobytes(), counts.tobytes(), len(items))

    def memory(self, more: int) -> int:
        size = c_uint64()
        self._library.bpeflow_table_memory(self._handle, more, byref(size))
        return size.value

    def shard(self, partition: int = 0, partitions: int = 1, path: Path | None = None) -> Shard:
        tokens, token_bytes = self._size(partition, partitions)
        if not tokens:
            return Shard.in_memory(partition, 0, b"")
        size = token_bytes + tokens * RECORD.size
        if path is None:
            data = bytearray(size)
            self._library.bpeflow_table_write(self._handle, partition, partitions, address(data), None)
            return Shard.in_memory(partition, tokens, data)
        with explain_write_error(path):
            self._library.bpeflow_table_write(self._handle, partition, partitions, None, os.fsencode(path))
        return Shard.in_file(partition, tokens, size, path)

    def settle(self) -> None:
        """Prepare for being read by several threads, after which no more is counted."""
        self._library.bpeflow_table_settle(self._handle)

    def _size(self, partition: int, partitions: int) -> tuple[int, int]:
        tokens, size = c_uint64(), c_uint64()
        self._library.bpeflow_table_size(self._handle, partition, partitions, byref(tokens), byref(size))
        return tokens.value, size.value


def weighted(shard: Shard, weight: int, path: Path | None = None) -> Shard:
    """Return a shard, which is in memory, with each count multiplied; in a file if `path` is given and it has any."""
    if weight == 1 and path is None:
        return shard
    items = ((token, count * weight) for token, count in shard.items())
    return Shard.pack(shard.partition, items, path if len(shard) else None)
