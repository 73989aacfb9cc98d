"""Merging runs: native and Python give the same bytes, those of a dictionary; damage and overflow are errors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from available import chosen, skip_missing
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merge import Order, PythonRunMerge, RunMerge
from bpeflow.counting.native_merge import NativeRunMerge
from bpeflow.counting.run import RECORD, CountRun
from bpeflow.counting.table import why_regex
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from bpeflow.pretokenize import load_pretokenizer

Items = list[tuple[bytes, int]]
Merge = Callable[[Sequence[CountRun], Order, int], RunMerge]


@pytest.fixture(params=chosen(["python", "native"]))
def merge(request: pytest.FixtureRequest) -> Merge:
    """Each implementation in turn."""
    if request.param == "python":
        return lambda runs, order, _: PythonRunMerge(runs, order)
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    return NativeRunMerge


# Shared beginnings, zeros that are bytes and zeros that are none, and words of all lengths about 8, 16 and a buffer's.
words = st.one_of(
    st.text("a\0b", min_size=1, max_size=20).map(str.encode),
    st.binary(min_size=1, max_size=12),
    st.integers(1, 60).map(lambda length: b"\xff" * length),
)
tables = st.lists(st.dictionaries(words, st.integers(1, 2**50) | st.integers(1, 3), max_size=40), max_size=9)


def packed(tables: Sequence[dict[bytes, int]], folder: Path, canonical: bool = False) -> list[CountRun]:
    """Pack the tables: one half in memory, the other in files."""
    runs = []
    for number, table in enumerate(tables):
        items = sorted(table.items(), key=canonical_order if canonical else None)
        runs.append(CountRun.pack(0, items, folder / f"{number}.run" if number % 2 and items else None))
    return runs


def canonical_order(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def summed(tables: Sequence[dict[bytes, int]]) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for table in tables:
        total.update(table)
    return total


@pytest.mark.slow
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_runs_add_up_in_order_of_bytes(merge: Merge, tables: list[dict[bytes, int]], buffer_size: int) -> None:
    with TemporaryDirectory() as name, merge(packed(tables, Path(name)), "bytes", buffer_size) as records:
        merged = records.write(Path(name) / "merged")
        assert list(merged.items()) == sorted(summed(tables).items())
        assert records.ended
        assert merged.path is not None
        assert merged.size == merged.path.stat().st_size


@pytest.mark.slow
@given(tables=tables, buffer_size=st.integers(1, 64), memory=st.sampled_from([1, 50, 300, 10**6]))
def test_pieces_are_in_canonical_order(
    merge: Merge, tables: list[dict[bytes, int]], buffer_size: int, memory: int
) -> None:
    pieces: list[Items] = []
    with TemporaryDirectory() as name, merge(packed(tables, Path(name)), "bytes", buffer_size) as records:
        while not records.ended:
            size = records.gather(memory)
            in_memory, in_file = records.gathered(), records.gathered(Path(name) / f"piece{len(pieces)}")
            assert in_file.path is not None
            assert in_file.path.read_bytes() == in_memory.data
            assert len(in_memory.data or b"") == in_memory.size == in_file.size == size
            assert size <= memory or len(in_memory) == 1
            pieces.append(list(in_memory.items()))
        assert records.gather(memory) == 0
        assert len(records.gathered()) == 0
    assert all(piece == sorted(piece, key=canonical_order) for piece in pieces)
    assert [item for piece in pieces for item in sorted(piece)] == sorted(summed(tables).items())
    assert len(pieces) <= 1 or memory < 10**6


@pytest.mark.slow
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_canonical_runs_become_counts(merge: Merge, tables: list[dict[bytes, int]], buffer_size: int) -> None:
    total = summed(tables)
    parts = [{word: total[word] for word in sorted(total)[start::4]} for start in range(4)]
    with TemporaryDirectory() as name, merge(packed(parts, Path(name), canonical=True), "count", buffer_size) as runs:
        assert runs.counts() == PretokenCounts.from_mapping(total)


def test_large_counts_are_sorted_as_small_ones_are(merge: Merge) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    table = {b"%d" % number: choose.choice([1, 4094, 4095, 4096, 4097, 2**40]) for number in range(5000)}
    with merge([CountRun.pack(0, sorted(table.items()))], "bytes", 1) as records:
        records.gather(1 << 20)
        assert list(records.gathered().items()) == sorted(table.items(), key=canonical_order)


def test_nothing_gives_nothing(merge: Merge, tmp_path: Path) -> None:
    for runs in ([], [CountRun.pack(0, [])]):
        with merge(runs, "bytes", 1) as records:
            assert records.ended
            assert records.gather(1000) == 0
            assert len(records.gathered(tmp_path / "run")) == 0
        with merge(runs, "count", 1) as records:
            assert len(records.counts()) == 0
    assert not list(tmp_path.iterdir())


def test_a_word_longer_than_every_buffer_goes_through(merge: Merge, tmp_path: Path) -> None:
    word = b"a" * 1_000_000
    runs = [CountRun.pack(0, [(b"a", 1), (word, 1)], tmp_path / f"{number}") for number in range(3)]
    with merge(runs, "bytes", 16) as records:
        assert list(records.write(tmp_path / "merged").items()) == [(b"a", 3), (word, 3)]


@pytest.mark.parametrize("files", [False, True])
def test_a_sum_beyond_64_bits_raises(merge: Merge, tmp_path: Path, files: bool) -> None:
    tables = [{b"a": 1, b"b": 2**62}, {b"b": 2**62 - 1}, {b"b": 1}]
    paths = [tmp_path / f"{number}" if files else None for number in range(3)]
    runs = [CountRun.pack(0, sorted(table.items()), path) for table, path in zip(tables, paths, strict=True)]
    with merge(runs[:2], "bytes", 64) as records:
        records.gather(1000)
        assert next(records.gathered().items()) == (b"b", 2**63 - 1)
    with merge(runs, "bytes", 64) as records, pytest.raises(CountOverflowError, match="64 bits"):
        records.gather(1000)
    with merge(runs, "bytes", 64) as records, pytest.raises(CountOverflowError, match="64 bits"):
        records.write(tmp_path / "merged")


def record(word: bytes, count: int, length: int | None = None) -> bytes:
    return RECORD.pack(len(word) if length is None else length, count) + word


GOOD = record(b"a", 1) + record(b"bc", 2) + record(b"d", 3)
DAMAGE = {
    "cut short": GOOD[:-1],
    "longer": GOOD + b"x",
    "empty": b"",
    "out of order": record(b"b", 1) + record(b"ac", 2) + record(b"d", 3),
    "length too great": record(b"a", 1) + record(b"bc", 2, 2**32 - 1) + record(b"d", 3),
    "length too small": record(b"a", 1) + record(b"bc", 2, 1) + record(b"d", 3),
    "no length": record(b"a", 1) + record(b"bc", 2, 0) + record(b"d", 3),
    "count of 0": record(b"a", 1) + record(b"bc", 0) + record(b"d", 3),
    "negative count": record(b"a", 1) + record(b"bc", -2) + record(b"d", 3),
    "fewer records": record(b"a", 1) + record(b"bc" + RECORD.pack(1, 3) + b"d", 2),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("buffer_size", [1, 1000])
def test_a_damaged_file_is_an_error_that_names_it(merge: Merge, tmp_path: Path, damage: str, buffer_size: int) -> None:
    path = tmp_path / "bad.run"
    path.write_bytes(DAMAGE[damage])
    runs = [CountRun.pack(0, [(b"a", 1), (b"z", 1)]), CountRun.in_file(0, 3, len(GOOD), path)]
    with merge(runs, "bytes", buffer_size) as records, pytest.raises(ScratchError, match=r"bad\.run are damaged"):
        records.gather(1000)


@pytest.mark.parametrize("tokens", [2, 3, 2**60])
def test_more_records_than_there_are_bytes_for_are_refused(merge: Merge, tmp_path: Path, tokens: int) -> None:
    size = CountRun.pack(0, [(b"a", 1)], tmp_path / "bad.run").size
    run = CountRun.in_file(0, tokens, size, tmp_path / "bad.run")
    with merge([run], "count", 64) as records, pytest.raises(ScratchError, match=r"bad\.run are damaged"):
        records.counts()


@given(data=st.binary(min_size=4 * RECORD.size, max_size=70), tokens=st.integers(1, 4))
def test_no_bytes_whatever_do_harm(merge: Merge, data: bytes, tokens: int) -> None:
    for order in ("bytes", "count"):
        try:
            with merge([CountRun.in_memory(0, tokens, data)], order, 8) as records:
                if order == "count":
                    records.counts()
                else:
                    records.gather(1000)
        except FormatError:
            continue
        assert len(list(CountRun.in_memory(0, tokens, data).items())) == tokens


def test_a_pretoken_in_two_canonical_runs_is_an_error(merge: Merge) -> None:
    run = CountRun.pack(0, [(b"a", 1)])
    with merge([run, run], "count", 8) as records, pytest.raises(FormatError):
        records.counts()


def test_a_file_that_is_gone_is_an_error_that_names_it(merge: Merge, tmp_path: Path) -> None:
    run = CountRun.pack(0, [(b"a", 1)], tmp_path / "gone.run")
    run.remove()
    with merge([run], "bytes", 8) as records, pytest.raises(ScratchError, match=r"gone\.run again: No such file"):
        records.gather(1000)


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(merge: Merge, tmp_path: Path) -> None:
    run = CountRun.pack(0, [(b"a", 1)])
    for path in (tmp_path / "not" / "there", tmp_path):
        with merge([run], "bytes", 8) as records, pytest.raises(ScratchError, match=f"cannot write counts to {path}: "):
            records.write(path)
        with merge([run], "bytes", 8) as records:
            records.gather(1000)
            with pytest.raises(ScratchError, match=f"cannot write counts to {path}: "):
                records.gathered(path)
