"""The counting table: what texts, documents and words add up to, however they are spilled, parted and merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bpeflow.corpus.delimiters import Delimiters
from bpeflow.counting.kway import NativeKWaySum
from bpeflow.counting.shards import MAX_COUNT, Shard
from bpeflow.counting.table import CountedDocuments, NativeTable
from bpeflow.errors import CountOverflowError
from bpeflow.pretokenize.native import NATIVE_PATTERNS, native_instructions
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, Difference, must_equal, outcome
from fuzzing.scanner import pretokenizer
from fuzzing.text import make_text
from fuzzing.words import make_many_words, make_words

_TOO_MUCH = (CountOverflowError,)
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
        _check_merged([list(runs) for runs in zip(*spilled, strict=True)], total, choices.below(200) + 1)


def _count(choices: Choices, table: NativeTable, counts: Counter[bytes], pattern: str) -> bool:
    """Add something to a table, and to its counts by the definition. False, and an end, if that is too much."""
    pretokens = pretokenizer(pattern).pretokens
    kind = choices.below(5)
    if kind == 0:
        text = make_text(Choices(choices.take(choices.below(120))))
        table.count(text.encode())
        counts.update(token.encode() for token in pretokens(text))
    elif kind < 4:
        # Few, many, or all that are there once more.
        words = (make_words, make_many_words, lambda _: dict.fromkeys(counts, 1))[kind - 1](choices)
        counts.update(words)
        too_much = any(counts[word] > MAX_COUNT for word in words)
        added = outcome(_TOO_MUCH, table.add, Shard.pack(0, words.items()))
        must_equal(f"overflow of {words}", added == REFUSED, too_much)
        return not too_much
    else:
        delimiters = choices.one_of(_DELIMITERS)
        data = b"".join(choices.one_of(_PIECES) for _ in range(choices.below(40)))
        exact = memoryview(np.frombuffer(data, np.uint8).copy())
        counted, texts = _documents(data, delimiters)
        must_equal(f"{delimiters}: {data!r}", table.count_documents(exact, delimiters), counted)
        counts.update(token.encode() for text in texts for token in pretokens(text))
    return True


def _documents(data: bytes, delimiters: Delimiters) -> tuple[CountedDocuments, list[str]]:
    """What the definition counts of some documents: those before the first that is not UTF-8."""
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
    """Write every partition to memory and to a file. Returns the runs, some from here and some from there."""
    must_equal("distinct pre-tokens", len(table), len(counts))
    if table.memory(1000) < table.memory(0) or table.memory(0) < sum(map(len, counts)):
        raise Difference(f"the table says that it takes {table.memory(0)} bytes, with 1000 more {table.memory(1000)}")
    runs: list[Shard] = []
    found: dict[bytes, int] = {}
    for partition in range(partitions):
        in_memory = table.shard(partition, partitions)
        in_file = table.shard(partition, partitions, path.with_suffix(f".{partition}"))
        must_equal("a run in a file", list(in_file.items()), items := list(in_memory.items()))
        _must_ascend([token for token, _ in items])
        if found.keys() & dict(items).keys():
            raise Difference(f"pre-tokens in two of {partitions} partitions: {found.keys() & dict(items).keys()}")
        found |= dict(items)
        runs.append(in_file if partition % 2 else in_memory)
    must_equal("counts", found, dict(counts))
    return runs


def _check_merged(partitions: Sequence[list[Shard]], total: Counter[bytes], buffer_size: int) -> None:
    """Merge the runs of each partition: together they are what there is in all, and none has what another one has."""
    merged: Counter[bytes] = Counter()
    too_much = any(count > MAX_COUNT for count in total.values())
    refused = False
    for runs in partitions:
        with NativeKWaySum(runs, "bytes", buffer_size) as merge:
            if outcome(_TOO_MUCH, merge.gather, 1 << 30) == REFUSED:
                refused = True
            else:
                merged.update(dict(merge.gathered().items()))
    must_equal("overflow", refused, too_much)
    if not too_much:
        must_equal("counts in all", dict(merged), dict(total))


def _must_ascend(tokens: Sequence[bytes]) -> None:
    for token, following in pairwise(tokens):
        if token >= following:
            raise Difference(f"{token!r} before {following!r}")
