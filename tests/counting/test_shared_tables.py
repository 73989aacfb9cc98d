"""Mergers in the same process as counters: the sum of their tables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread

import pytest
from available import skip_missing
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.merger import CountMerger, reduce_shards
from bpeflow.counting.shards import MAX_COUNT, Shard, new_scratch, owned_partitions
from bpeflow.counting.table import NativeTable, SharedTables, TablePart
from bpeflow.errors import CountOverflowError, NativeError
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer


@pytest.fixture(autouse=True)
def _native() -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))


def table_of(counts: dict[bytes, int]) -> NativeTable:
    table = NativeTable()
    for token, count in counts.items():
        for _ in range(count):
            table.count(token)
    return table


def share(
    shared: SharedTables, tables: Sequence[dict[bytes, int]], weights: Sequence[int], mergers: int
) -> list[list[TablePart]]:
    return [
        list(shared.share(table_of(counts), weight, mergers)) for counts, weight in zip(tables, weights, strict=True)
    ]


def canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


# Each is one pre-token. Equal prefixes of 8, 16 and 32 bytes, zeros at the end and inside, and counts around the limit
# of the counting sort.
tokens = st.builds(
    lambda prefix, rest: prefix + rest,
    st.sampled_from([b"", b"!#$%&()", b"!#$%&()*", b"!#$%&()*+,-./:;<", b"~" * 31, b"~" * 40]),
    st.sampled_from([b"!", b"\0", b"\0\0", b"!\0", b"#", b"!#", b"\x7f", b"~", b"~~"]),
)
counts_of = st.one_of(st.integers(1, 3), st.integers(254, 258))
some_tables = st.lists(st.dictionaries(tokens, counts_of, max_size=20), min_size=1, max_size=4)


@given(some_tables, st.lists(st.sampled_from([1, 2, 2**40]), min_size=4, max_size=4), st.integers(1, 3))
def test_sums_have_the_counts_of_all_tables_in_canonical_order(
    tables: list[dict[bytes, int]], weights: list[int], mergers: int
) -> None:
    expected: Counter[bytes] = Counter()
    for counts, weight in zip(tables, weights, strict=False):
        expected.update({token: count * weight for token, count in counts.items()})
    shared = SharedTables()
    parts = share(shared, tables, weights[: len(tables)], mergers)
    for merger in range(mergers):
        assert len(shared.sum([row[merger] for row in parts])) == 0
    assert list(shared.join().items()) == sorted(expected.items(), key=canonical)
    assert not shared.summed


@pytest.mark.threads
def test_partitions_of_large_tables_are_summed_at_the_same_time() -> None:
    """Large enough that the index of a sum grows, and that not all pre-tokens are in the sample which divides them."""
    choose = random.Random(0)
    words = [bytes(choose.choices(b"!#$%&()*", k=10)) for _ in range(60_000)]
    tables = [dict.fromkeys(choose.sample(words, 16_000), number + 1) for number in range(3)]
    expected: Counter[bytes] = Counter()
    for counts in tables:
        expected.update(counts)
    shared = SharedTables()
    parts = share(shared, tables, [1, 2, 1], 4)
    expected.update(tables[1])
    threads = [Thread(target=lambda p=p: shared.sum([row[p] for row in parts])) for p in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(shared.join().items()) == sorted(expected.items(), key=canonical)


def test_sums_of_some_partitions_only_cannot_be_joined() -> None:
    shared = SharedTables()
    [[first, _]] = share(shared, [{b"!": 1, b"#": 2, b"$": 3}], [1], 2)
    shared.sum([first])
    with pytest.raises(NativeError, match="bpeflow_sorted_new"):
        shared.join()


def test_the_sum_of_empty_tables_is_empty() -> None:
    shared = SharedTables()
    for (part,) in share(shared, [{}], [1], 1):
        shared.sum([part])
    assert shared.summed
    assert list(shared.join().items()) == []


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    shared = SharedTables()
    parts = share(shared, [{b"!": 1}, {b"!": 1}], [MAX_COUNT, 1], 1)
    with pytest.raises(CountOverflowError):
        shared.sum([row[0] for row in parts])
    with pytest.raises(CountOverflowError):
        share(shared, [{b"!": 2}], [2**62], 1)


def test_parts_and_shards_add_up_where_a_counter_had_to_spill() -> None:
    shared = SharedTables()
    [parts] = share(shared, [{b"!": 2, b"#": 3}], [2], 2)
    spilled = Shard.pack([(b"!", 1), (b"$", 9)])
    memory, statistics = MemoryBudget.share(1 << 30, 1, 1), DocumentStatistics(documents=5)
    merge = CountMerger(memory, new_scratch(None), shared=shared)
    owned = owned_partitions(2)
    sums = [
        *merge([replace(parts[0], statistics=statistics), spilled.select(owned[0])]),
        *merge([spilled.select(owned[1], 1), parts[1]]),
    ]
    counts, documents = reduce_shards(sums, memory, shared)
    assert list(counts.items()) == [(b"$", 9), (b"#", 6), (b"!", 5)]
    assert documents == statistics
