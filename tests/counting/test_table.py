"""The count tables: what is added up in them, and the runs that they give."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Spilled
from bpeflow.counting.table import (
    CountTable,
    Scanner,
    new_table,
)
from bpeflow.errors import CountOverflowError, ScratchError
from bpeflow.pretokenize import load_pretokenizer

tables = st.dictionaries(st.text(min_size=1, max_size=40), st.integers(1, 2**40), max_size=30)


@pytest.mark.slow
@given(parts=st.lists(tables, max_size=4), partitions=st.integers(1, 5))
def test_runs_add_up_and_partitions_have_all(scanner: Scanner, parts: list[dict[str, int]], partitions: int) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    total: Counter[bytes] = Counter()
    for part in parts:
        encoded = {text.encode(): count for text, count in part.items()}
        total.update(encoded)
        table.add(CountRun.pack(0, encoded.items()))
    in_order = sorted(total.items())
    assert list(table.run().items()) == in_order
    assert len(table) == len(total)
    runs = [table.run(partition, partitions) for partition in range(partitions)]
    assert sorted(item for run in runs for item in run.items()) == sorted(total.items())
    assert all(list(run.items()) == [item for item in in_order if item in set(run.items())] for run in runs)
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


def test_a_run_is_the_same_in_memory_and_in_a_file(scanner: Scanner, tmp_path: Path) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.count(b"the cat and the hat and the rest " * 10_000 + " naïve 日本語".encode())
    for partition in range(3):
        in_memory, in_file = table.run(partition, 3), table.run(partition, 3, tmp_path / f"{partition}.run")
        assert in_file.path is not None
        assert in_file.path.read_bytes() == in_memory.data
        assert (in_file.tokens, in_file.size) == (in_memory.tokens, in_memory.size)
        assert in_file.spilled == Spilled(1, in_memory.size)
        assert list(in_file.items()) == list(in_memory.items())


def test_an_empty_table_writes_no_file(scanner: Scanner, tmp_path: Path) -> None:
    run = new_table(load_pretokenizer("gpt2"), scanner).run(0, 1, tmp_path / "run")
    assert (len(run), run.path, run.spilled, run.statistics) == (0, None, Spilled(), DocumentStatistics())
    assert not list(tmp_path.iterdir())


def test_a_run_that_cannot_be_written_is_an_error(scanner: Scanner, tmp_path: Path) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.count(b"some words")
    with pytest.raises(ScratchError, match=r"cannot write counts to .*there/run: No such file.*scratch_dir"):
        table.run(path=tmp_path / "not" / "there" / "run")
    (tmp_path / "run").write_bytes(b"somebody else's")
    with pytest.raises(ScratchError, match="File exists"):
        table.run(path=tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == b"somebody else's"


def test_memory_tells_what_the_table_has_and_will_have(scanner: Scanner) -> None:
    table = new_table(load_pretokenizer("gpt2"), scanner)
    empty = table.memory(0)
    table.add(CountRun.pack(0, [(f"word{number}".encode(), 1) for number in range(20_000)]))
    assert table.memory(0) >= max(empty, 20_000 * 50)
    assert table.memory(100_000) >= max(table.memory(0), 120_000 * 50)
    table.add(CountRun.pack(0, [(b"long" * 250_000, 1)]))
    assert table.memory(0) > 1_000_000 or scanner == "regex"  # which does not look at single ones


def test_long_prefixes_and_zeros_are_in_order(scanner: Scanner) -> None:
    """What a sort by the first bytes, seen as numbers, could get wrong."""
    words = [b"a" * length + end for length in range(1, 40) for end in (b"", b"\0", b"\0\0", b"b", b"\x7f")]
    words += [bytes([first]) + b"\0" * zeros for first in range(1, 128) for zeros in range(12)]
    counts = {word: number + 1 for number, word in enumerate(words)}
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.add(CountRun.pack(0, counts.items()))
    assert list(table.run().items()) == sorted(counts.items())
