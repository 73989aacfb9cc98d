"""The counting table: counts of texts, documents and words are exact, however they are spilled and partitioned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bpeflow.corpus.documents import Delimiters
from bpeflow.counting.merger import NativeSum
from bpeflow.counting.shards import MAX_COUNT, PARTITIONS, Shard
from bpeflow.counting.table import CountedDocuments, NativeTable
from bpeflow.errors import CountOverflowError
from bpeflow.pretokenize.native import NATIVE_PATTERNS, native_instructions
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, DifferenceError, must_equal, outcome
from fuzzing.scanner import pretokenizer
from fuzzing.text import make_text

_OVERFLOW = (CountOverflowError,)
_DELIMITERS = (
    Delimiters(None),
    Delimiters("\n"),
    Delimiters("<|end|>", ["<|end", "<s>", "é", "||"]),
    Delimiters(None, ["<s>", "<s><s>"]),
    Delimiters(None, ["<s>"], record_end=b"\xff"),
)
#: Units of single pre-tokens.
_UNITS = ("a", "!", "!\0", "#######", "########", "#######\0", "!" * 15, "!" * 16, "é" * 8, "b" * 16)
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_PIECES = (
    *(b"<|end|>", b"<|end", b"<s>", "é".encode(), b"||", b"<", b"|", b">", b" a", b"b.", b"\n", b"x" * 60),
    *(b"\xff", b"\xc3", b"\xe4\xb8", b"\xa9", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"),
)


def check(data: bytes) -> None:
    choices = Choices(data)
    pattern, instructions = choices.one_of(tuple(NATIVE_PATTERNS)), choices.one_of(native_instructions())
    shards: list[Shard] = []
    total: Counter[bytes] = Counter()
    with TemporaryDirectory() as name:
        while choices.left or not shards:
            weight = choices.one_of((1, 1, 1, 3, 2**61))
            table, counts = NativeTable(pattern, instructions, weight), Counter[bytes]()
            for _ in range(choices.below(6)):
                counted = outcome(_OVERFLOW, _count, choices, table, counts, pattern)
                overflows = any(count * weight > MAX_COUNT for count in counts.values())
                must_equal("overflow", counted == REFUSED, overflows)
                if overflows:
                    return
            counts = Counter({token: count * weight for token, count in counts.items()})
            _must_be_right(table, counts)
            shard = table.shard(choices.one_of((None, Path(name) / str(len(shards)))))
            must_equal("a shard", list(shard.items()), list(Shard.pack(counts.items()).items()))
            shards.append(shard)
            total.update(counts)
        _check_sum(shards, total, choices.below(200) + 1)


def _count(choices: Choices, table: NativeTable, counts: Counter[bytes], pattern: str) -> None:
    """Count something with a table and by the definition."""
    pretokens = pretokenizer(pattern).pretokens
    kind = choices.below(4)
    if kind < 3:
        text = make_text(Choices(choices.take(choices.below(120))))
        if kind == 1:  # so many words that tables must grow
            first = choices.below(1 << 16)
            text += "".join(f" {number:x}".translate(_LETTERS) for number in range(first, first + choices.below(4000)))
        if kind == 2:  # whose lengths are around the special cases, some with zeros at the end
            text = "\n".join(choices.one_of(_UNITS) * (choices.below(3) + 1) for _ in range(choices.below(40)))
        counts.update(token.encode() for token in pretokens(text))
        table.count(text.encode())
    else:
        delimiters = choices.one_of(_DELIMITERS)
        data = b"".join(choices.one_of(_PIECES) for _ in range(choices.below(40)))
        exact = memoryview(np.frombuffer(data, np.uint8).copy())
        counted, texts = _documents(data, delimiters)
        counts.update(token.encode() for text in texts for token in pretokens(text))
        must_equal(f"{delimiters}: {data!r}", table.count_documents(exact, delimiters), counted)


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


def _must_be_right(table: NativeTable, counts: Counter[bytes]) -> None:
    must_equal("distinct pre-tokens", len(table), len(counts))
    if table.memory(1000) < table.memory(0) or table.memory(0) < sum(map(len, counts)):
        raise DifferenceError(f"the table reports {table.memory(0)} bytes, and {table.memory(1000)} with 1000 more")


def _check_sum(shards: Sequence[Shard], total: Counter[bytes], buffer_size: int) -> None:
    """Check that the k-way sums of all partitions together give the total counts, or overflow."""
    added: Counter[bytes] = Counter()
    overflows = any(count > MAX_COUNT for count in total.values())
    refused = False
    for partition in range(PARTITIONS):
        own = [part for part in (shard.select(range(partition, partition + 1)) for shard in shards) if len(part)]
        summed = outcome(_OVERFLOW, NativeSum(own, buffer_size).write) if own else Shard.pack(())
        if summed == REFUSED:
            refused = True
        else:
            added.update(dict(summed.items()))
    must_equal("overflow", refused, overflows)
    if not overflows:
        must_equal("total counts", dict(added), dict(total))
