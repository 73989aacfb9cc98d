"""The parts of counting, each alone as far as it can be."""

from __future__ import annotations

from collections import Counter

import pytest
from available import skip_missing
from pytest_benchmark.fixture import BenchmarkFixture

from bpeflow.corpus.documents import Delimiters, DocumentStatistics
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merger import kway_sum
from bpeflow.counting.shards import PARTITIONS, Shard
from bpeflow.counting.table import NativeTable, SharedTables
from bpeflow.pretokenize.native import NATIVE_PATTERNS, native_instructions, why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

pytestmark = pytest.mark.benchmark(group="counting")
DELIMITERS = Delimiters("<|endoftext|>", ())


@pytest.fixture(params=["source_code", "wide_text"])
def text(request: pytest.FixtureRequest) -> bytes:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    return bytes(request.getfixturevalue(request.param))


def instruction_sets() -> list[str]:
    return [] if why_regex(load_pretokenizer("gpt2")) else list(native_instructions())


@pytest.mark.parametrize("instructions", instruction_sets())
def test_utf8(benchmark: BenchmarkFixture, text: bytes, instructions: str) -> None:
    """A document that is invalid at its last byte is checked as a whole, and nothing of it is counted."""
    table = NativeTable(instructions=instructions)
    invalid = bytearray(text + b"\xff")
    counted = benchmark(lambda: table.count_documents(memoryview(invalid), Delimiters(None, ())))
    assert counted.bytes == 0


@pytest.mark.parametrize("instructions", instruction_sets())
@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_scanner(benchmark: BenchmarkFixture, size: int, pattern: str, instructions: str) -> None:
    """Few distinct words: all are in the front table, so most of the time is the scanner's."""
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    line = "The quick brown fox doesn't jump over 12 lazy dogs, and says: so what?\n"
    text = (line * (size // len(line))).encode()
    table = NativeTable(pattern, instructions)
    benchmark(table.count, text)
    rounds, rest = divmod(sum(count for _, count in table.shard().items()), size // len(line))
    assert rest == 0
    assert rounds % len(load_pretokenizer(pattern).pretokens(line)) == 0


def test_table(benchmark: BenchmarkFixture, text: bytes) -> None:
    """A new table each time: most of the time goes into the first occurrences of pre-tokens."""

    def count() -> NativeTable:
        table = NativeTable()
        table.count(text)
        return table

    table = benchmark(count)
    assert dict(table.shard().items()) == Counter(
        pretoken.encode() for pretoken in load_pretokenizer("gpt2").pretokens(text.decode())
    )


def test_shard(benchmark: BenchmarkFixture, text: bytes) -> None:
    """Sorting a table and packing its records."""
    table = NativeTable()
    table.count(text)
    shard = benchmark(table.shard)
    assert shard == Shard.pack(shard.items())
    assert len(shard) == len(table)


def test_sum_of_tables(benchmark: BenchmarkFixture, text: bytes) -> None:
    """The sum of two tables, which it uses up, in canonical order."""

    def new() -> tuple[tuple[SharedTables], dict[str, int]]:
        shared = SharedTables()
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            table = NativeTable()
            table.count(half.decode("utf-8", "ignore").encode())
            shared.add([table], DocumentStatistics())
        return (shared,), {}

    _, _, counts = benchmark.pedantic(SharedTables.join, setup=new, rounds=5)
    counts = counts.tolist()
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("shards", [2, 16])
def test_kway_sum(benchmark: BenchmarkFixture, text: bytes, shards: int) -> None:
    """The sum of several shards, by partition, and then the counts in canonical order."""
    pieces = []
    for number in range(shards):
        table = NativeTable()
        table.count(text[len(text) * number // shards :].decode("utf-8", "ignore").encode())
        pieces.append(table.shard())

    def add_up() -> PretokenCounts:
        sums = []
        for partition in range(PARTITIONS):
            own = [piece.select(range(partition, partition + 1)) for piece in pieces]
            sums.append(kway_sum([part for part in own if len(part)], 1 << 16).write())
        return kway_sum(sums, 1 << 16).counts()

    benchmark(add_up)
    if benchmark.disabled:
        expected: Counter[bytes] = Counter()
        for piece in pieces:
            expected.update(dict(piece.items()))
        assert add_up() == PretokenCounts.from_mapping(expected)
