"""The count tables: what is added up in them, and the runs that they give."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.run import CountRun
from bpeflow.counting.table import (
    CountTable,
    Scanner,
    new_table,
)
from bpeflow.errors import CountOverflowError
from bpeflow.pretokenize import load_pretokenizer

tables = st.dictionaries(st.text(min_size=1, max_size=40), st.integers(1, 2**40), max_size=30)


@given(parts=st.lists(tables, max_size=4), partitions=st.integers(1, 5))
def test_runs_add_up_and_partitions_have_all(scanner: Scanner, parts: list[dict[str, int]], partitions: int) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    total: Counter[bytes] = Counter()
    for part in parts:
        encoded = {text.encode(): count for text, count in part.items()}
        total.update(encoded)
        table.add(CountRun.pack(0, encoded.items()))
    canonical = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    assert list(table.run().items()) == canonical
    assert len(table) == len(total)
    runs = [table.run(partition, partitions) for partition in range(partitions)]
    assert sorted(item for run in runs for item in run.items()) == sorted(total.items())
    assert all(list(run.items()) == [item for item in canonical if item in set(run.items())] for run in runs)
    assert [run.partition for run in runs] == list(range(partitions))


def test_partitions_do_not_depend_on_what_else_is_in_the_table(scanner: Scanner) -> None:
    words = [f"word{number}".encode() for number in range(2000)]
    both, half = (new_table(load_pretokenizer("gpt2"), scanner) for _ in range(2))
    both.add(CountRun.pack(0, [(word, 1) for word in words]))
    half.add(CountRun.pack(0, [(word, 9) for word in reversed(words[::2])]))
    for partition in range(3):
        assert {w for w, _ in half.run(partition, 3).items()} <= {w for w, _ in both.run(partition, 3).items()}
        assert 500 < len(both.run(partition, 3)) < 850


def test_keys_that_differ_in_padding_and_length_are_kept_apart(scanner: Scanner) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    words = {bytes(choose.choices(b"\x00a", k=choose.randrange(1, 40))): choose.randrange(1, 9) for _ in range(50_000)}
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.add(CountRun.pack(0, words.items()))
    assert dict(table.run().items()) == words


def test_a_sum_beyond_64_bits_raises(scanner: Scanner) -> None:
    def add_twice(table: CountTable) -> None:
        for _ in range(2):
            table.add(CountRun.pack(0, [(b"a", 2**62), (b"b", 1)]))
        table.run()

    with pytest.raises(CountOverflowError, match="64 bits"):
        add_twice(new_table(load_pretokenizer("gpt2"), scanner))


def test_a_run_becomes_counts(scanner: Scanner) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.count(b"the cat and the hat and the rest")
    counts = table.run().to_counts()
    assert list(counts)[:3] == [(b" and", 2), (b" the", 2), (b" cat", 1)]
    assert table.run().statistics == DocumentStatistics()
    assert len(new_table(load_pretokenizer("gpt2"), scanner).run().to_counts()) == 0
