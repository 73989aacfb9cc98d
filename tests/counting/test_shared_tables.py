"""Mergers in the same process as counters: the sum of their tables."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from available import skip_missing
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merger import CountMerger, reduce_shards
from bpeflow.counting.shards import MAX_COUNT, Scratch, Shard, owned_partitions
from bpeflow.counting.table import NativeTable, SharedTables
from bpeflow.errors import CountOverflowError
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer


@pytest.fixture(autouse=True)
def _native() -> None:
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))


def table_of(counts: dict[bytes, int], weight: int) -> NativeTable:
    table = NativeTable(weight=weight)
    for token, count in counts.items():
        for _ in range(count):
            table.count(token)
    return table


def share(tables: Sequence[dict[bytes, int]], weights: Sequence[int], threads: int) -> SharedTables:
    shared = SharedTables(threads)
    for counts, weight in zip(tables, weights, strict=True):
        shared.add([table_of(counts, weight)], DocumentStatistics(documents=1))
    return shared


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
    tables: list[dict[bytes, int]], weights: list[int], threads: int
) -> None:
    expected: Counter[bytes] = Counter()
    for counts, weight in zip(tables, weights, strict=False):
        expected.update({token: count * weight for token, count in counts.items()})
    shared = share(tables, weights[: len(tables)], threads)
    assert list(PretokenCounts(*shared.join()).items()) == sorted(expected.items(), key=canonical)
    assert shared.statistics.documents == len(tables)
    assert not len(shared)


@pytest.mark.threads
def test_partitions_of_large_tables_are_summed_at_the_same_time() -> None:
    """Large enough that the index of a sum grows, and that not all pre-tokens are in the sample which divides them."""
    choose = random.Random(0)
    words = [bytes(choose.choices(b"!#$%&()*", k=10)) for _ in range(60_000)]
    tables = [dict.fromkeys(choose.sample(words, 16_000), number + 1) for number in range(3)]
    expected: Counter[bytes] = Counter()
    for counts in tables:
        expected.update(counts)
    expected.update(tables[1])
    assert list(PretokenCounts(*share(tables, [1, 2, 1], 4).join()).items()) == sorted(expected.items(), key=canonical)


#: Counts a file in a process of its own, and prints how far this raised the peak of the memory.
PEAK_OF_COUNTING = """
import re, sys
from pathlib import Path
import bpeflow

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

bpeflow.count(iter(["a text"]), num_counter=1)
before = peak()
counts = bpeflow.count(sys.argv[1], num_counter=1, chunk_size="256kb")
print((peak() - before) / len(counts))
"""


@pytest.mark.not_sanitized  # which take memory
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as on Linux")
def test_no_pre_token_is_in_memory_twice(tmp_path: Path) -> None:
    """The peak is 115 bytes for one of 64. If records were returned only after all were copied, it would be 167."""
    choose = random.Random(0)
    words = ("".join(choose.choices("abcdefgh", k=63)) for _ in range(390_000))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f" {word}" for word in words), encoding="ascii")
    command = [sys.executable, "-c", PEAK_OF_COUNTING, str(corpus)]
    assert float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) < 140


def test_the_sum_of_empty_tables_is_empty() -> None:
    assert list(PretokenCounts(*share([{}], [1], 1).join()).items()) == []


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(CountOverflowError):
        share([{b"!": 1}, {b"!": 1}], [MAX_COUNT, 1], 1).join()
    with pytest.raises(CountOverflowError):
        share([{b"!": 2}], [2**62], 1)


def test_tables_and_shards_add_up_where_a_counter_had_to_spill(tmp_path: Path) -> None:
    shared = share([{b"!": 2, b"#": 3}, {b"!": 1}], [2, 1], 2)
    spilled = replace(Shard.pack([(b"!", 1), (b"$", 9)]), statistics=DocumentStatistics(documents=5))
    merger = CountMerger(MemoryBudget.share(1 << 30, 1, 1), Scratch(tmp_path))
    sums = [shard for owned in owned_partitions(2) for shard in merger([spilled.select(owned)])]
    counts, documents = reduce_shards(sums, merger, shared)
    assert list(counts.items()) == [(b"$", 9), (b"!", 6), (b"#", 6)]
    assert documents == DocumentStatistics(documents=7)
