"""The counting table: counts of texts, documents and words are exact, however they are spilled and partitioned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.native_kway import NativeKWaySum
from bpeflow.counting.shards import MAX_COUNT, Shard
from bpeflow.counting.table import CountedDocuments, NativeTable
from bpeflow.errors import CountOverflowError
from bpeflow.pretokenize.native import NATIVE_PATTERNS, native_instructions
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, DifferenceError, must_equal, outcome
from fuzzing.scanner import pretokenizer
from fuzzing.text import make_text
from fuzzing.words import make_many_words, make_words

_OVERFLOW = (CountOverflowError,)
_DELIMITERS = (
    Delimiters(None),
    Delimiters("\n"),
    Delimiters("<|end|>", ["<|end", "<s>", "é", "||"]),
    Delimiters(None, ["<s>", "<s><s>"]),
    Delimiters(None, ["<s>"], record_end=b"\xff"),
)
_PIECES = (
    *(b"<|end|>", b"<|end", b"<s>", "é".encode(), b"||", b"<", b"|", b">", b" a", b"b.", b"\n", b"x" * 60),
    *(b"\xff", b"\xc3", b"\xe4\xb8", b"\xa9", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"),
)


def check(data: bytes) -> None:
    choices = Choices(data)
    pattern, instructions = choices.one_of(tuple(NATIVE_PATTERNS)), choices.one_of(native_instructions())
    partitions = choices.below(5) + 1
    spilled: list[list[Shard]] = []
    total: Counter[bytes] = Counter()
    with TemporaryDirectory() as name:
        while choices.left or not spilled:
            table, counts = NativeTable(pattern, instructions), Counter[bytes]()
            for _ in range(choices.below(6)):
                if not _count(choices, table, counts, pattern):
                    return
            spilled.append(_spill(table, counts, partitions, Path(name) / str(len(spilled))))
            total.update(counts)
        _check_sum([list(shards) for shards in zip(*spilled, strict=True)], total, choices.below(200) + 1)


def _count(choices: Choices, table: NativeTable, counts: Counter[bytes], pattern: str) -> bool:
    """Count something with a table and by the definition. Return False, to stop, if a count overflows."""
    pretokens = pretokenizer(pattern).pretokens
    kind = choices.below(5)
    if kind == 0:
        text = make_text(Choices(choices.take(choices.below(120))))
        table.count(text.encode())
        counts.update(token.encode() for token in pretokens(text))
    elif kind < 4:
        # Few words, many words, or all existing words once more.
        words = (make_words, make_many_words, lambda _: dict.fromkeys(counts, 1))[kind - 1](choices)
        counts.update(words)
        overflows = any(counts[word] > MAX_COUNT for word in words)
        added = outcome(_OVERFLOW, table.add, Shard.pack(0, words.items()))
        must_equal(f"overflow of {words}", added == REFUSED, overflows)
        return not overflows
    else:
        delimiters = choices.one_of(_DELIMITERS)
        data = b"".join(choices.one_of(_PIECES) for _ in range(choices.below(40)))
        exact = memoryview(np.frombuffer(data, np.uint8).copy())
        counted, texts = _documents(data, delimiters)
        must_equal(f"{delimiters}: {data!r}", table.count_documents(exact, delimiters), counted)
        counts.update(token.encode() for text in texts for token in pretokens(text))
    return True


def _documents(data: bytes, delimiters: Delimiters) -> tuple[CountedDocuments, list[str]]:
    """Return the documents before the first that is not UTF-8, and the texts in them, by the definition."""
    texts: list[str] = []
    done = CountedDocuments()
    start = 0
    for document in delimiters.documents(data):
        try:
            texts += [data[begin:end].decode() for begin, end in document.pieces]
        except UnicodeDecodeError:
            break
        start = document.pieces[-1][1] + (len(delimiters.separator_bytes) if document.closed else 0)
        done = CountedDocuments(start, done.documents + 1, not document.closed)
    return done, texts


def _spill(table: NativeTable, counts: Counter[bytes], partitions: int, path: Path) -> list[Shard]:
    """Write every partition to memory and to a file. Return the shards, alternating between the two."""
    must_equal("distinct pre-tokens", len(table), len(counts))
    if table.memory(1000) < table.memory(0) or table.memory(0) < sum(map(len, counts)):
        raise DifferenceError(f"the table reports {table.memory(0)} bytes, and {table.memory(1000)} with 1000 more")
    shards: list[Shard] = []
    found: dict[bytes, int] = {}
    for partition in range(partitions):
        in_memory = table.shard(partition, partitions)
        in_file = table.shard(partition, partitions, path.with_suffix(f".{partition}"))
        must_equal("a shard in a file", list(in_file.items()), items := list(in_memory.items()))
        _must_be_sorted([token for token, _ in items])
        if found.keys() & dict(items).keys():
            raise DifferenceError(f"pre-tokens in two of {partitions} partitions: {found.keys() & dict(items).keys()}")
        found |= dict(items)
        shards.append(in_file if partition % 2 else in_memory)
    must_equal("counts", found, dict(counts))
    return shards


def _check_sum(partitions: Sequence[list[Shard]], total: Counter[bytes], buffer_size: int) -> None:
    """Check that the k-way sums of all partitions together give the total counts, or overflow."""
    added: Counter[bytes] = Counter()
    overflows = any(count > MAX_COUNT for count in total.values())
    refused = False
    for shards in partitions:
        with NativeKWaySum(shards, "bytes", buffer_size) as kway:
            if outcome(_OVERFLOW, kway.gather, 1 << 30) == REFUSED:
                refused = True
            else:
                added.update(dict(kway.gathered().items()))
    must_equal("overflow", refused, overflows)
    if not overflows:
        must_equal("total counts", dict(added), dict(total))


def _must_be_sorted(tokens: Sequence[bytes]) -> None:
    for token, following in pairwise(tokens):
        if token >= following:
            raise DifferenceError(f"{token!r} before {following!r}")
