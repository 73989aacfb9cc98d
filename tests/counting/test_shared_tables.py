"""Mergers in the same process as counters: the sum of their tables."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from available import skip_missing
from hypothesis import given
from hypothesis import strategies as st

from bpeflow._util.packed import PackedBytes
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.canonical import canonical as in_canonical_order
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
@pytest.mark.parametrize("number_of_tables", [2, 3])
def test_partitions_of_large_tables_are_summed_at_the_same_time(number_of_tables: int) -> None:
    """Large enough that the index of a sum grows, and that not all pre-tokens are in the sample which divides them."""
    choose = random.Random(0)
    words = [bytes(choose.choices(b"!#$%&()*", k=10)) for _ in range(60_000)]
    tables = [dict.fromkeys(choose.sample(words, 16_000), number + 1) for number in range(number_of_tables)]
    expected: Counter[bytes] = Counter()
    for counts in tables:
        expected.update(counts)
    expected.update(tables[1])
    assert list(PretokenCounts(*share(tables, [1, 2, 1][:number_of_tables], 4).join()).items()) == sorted(
        expected.items(), key=canonical
    )


def test_large_ranges_are_sorted_in_parts() -> None:
    """Many parts, with lengths around what is copied at once, and groups of all sizes that agree in the first bytes."""
    choose = random.Random(0)
    prefixes = [choose.randbytes(choose.choice([1, 5, 7, 30])) for _ in range(2000)]
    words = {choose.choice(prefixes) + choose.randbytes(choose.randrange(40)): 0 for _ in range(200_000)}
    counts = [choose.choice([1, 1, 1, 2, 255, 256, 2**40]) for _ in words]
    packed = PackedBytes.of(words)
    columns = np.frombuffer(packed.data, np.uint8), packed.offsets, np.array(counts, np.int64)
    assert list(PretokenCounts(*in_canonical_order(*columns)).items()) == sorted(
        zip(words, counts, strict=True), key=canonical
    )


#: Counts a file in a process of its own, and prints how far this raised the peak of the memory.
PEAK_OF_COUNTING = """
import re, sys
from pathlib import Path
import bpeflow

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

counters = int(sys.argv[2])
bpeflow.count(iter(["a text"]), num_counter=counters)
before = peak()
counts = bpeflow.count(sys.argv[1], num_counter=counters, chunk_size="256kb")
print((peak() - before) / len(counts))
"""


@pytest.mark.not_sanitized  # which take memory
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as on Linux")
@pytest.mark.parametrize(("counters", "length", "most"), [(1, 64, 140), (2, 256, 430)])
def test_no_pre_token_is_in_memory_twice(tmp_path: Path, counters: int, length: int, most: int) -> None:
    """The peak is 113 bytes for one of 64, and 365-392 for one of 256 with two counters.

    If records were returned only after all were copied, it would be 163, and 464-549. With two counters the pre-tokens
    are longer, as each thread writes to the huge pages of eight ranges at the same time.
    """
    letters = bytes(b"abcdefgh"[byte % 8] for byte in range(256))
    choose = random.Random(0)
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"".join(b" " + choose.randbytes(length - 1).translate(letters) for _ in range(390_000)))
    command = [sys.executable, "-c", PEAK_OF_COUNTING, str(corpus), str(counters)]
    assert float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) < most


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
