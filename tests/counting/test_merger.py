"""The merger: one shard per partition in canonical order, in memory, through files, and in several passes.

The sums of ranges of pre-tokens are the sum of all.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from available import chosen
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting import kway
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.kway import PythonKWaySum, kway_sum
from bpeflow.counting.merger import CountMerger, RangeSum, divide, reduce_shards
from bpeflow.counting.shards import EVERYTHING, MARK_LENGTH, KeyRange, Mark, Scratch, Shard, Spilled
from bpeflow.errors import CountOverflowError, NativeUnavailableError

AMPLE = MemoryBudget(1 << 30, 1 << 30)
tables = st.lists(
    st.dictionaries(st.binary(min_size=1, max_size=20), st.integers(1, 9), min_size=1, max_size=30), max_size=12
)


def canonical(tables: list[dict[bytes, int]]) -> list[tuple[bytes, int]]:
    total: Counter[bytes] = Counter()
    for table in tables:
        total.update(table)
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))


@pytest.mark.slow
@given(tables=tables, share=st.sampled_from([200, 2000, 1 << 20]), max_open=st.integers(2, 4), data=st.data())
def test_any_number_of_shards_add_up_in_any_memory(
    tables: list[dict[bytes, int]], share: int, max_open: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        scratch = Scratch(Path(name) / "scratch")
        shards = [
            Shard.pack(0, sorted(table.items()), scratch.new_path("counter") if data.draw(st.booleans()) else None)
            for table in tables
        ]
        written = sum((shard.spilled for shard in shards), start=Spilled())
        results = list(CountMerger(MemoryBudget(share, share), scratch, max_open)(shards))
        assert [list(shard.items()) for shard in results] == ([canonical(tables)] if tables else [])
        left = [shard.path for shard in results if shard.path is not None]
        assert sorted(scratch.folder.iterdir() if scratch.folder.exists() else []) == left  # summed files are removed
        assert sum(shard.spilled.bytes for shard in results) >= written.bytes
        assert left or sum(shard.size for shard in results) <= share // 8
        assert not left or share < 1 << 20


def test_a_partition_keeps_its_number_and_statistics_add_up(tmp_path: Path) -> None:
    one = Shard(1, 0, 0, b"", statistics=DocumentStatistics(documents=2, bytes=10))
    [summed] = CountMerger(AMPLE, Scratch(tmp_path / "scratch"))([Shard.pack(1, [(b"b", 1), (b"c", 2)]), one, one])
    assert (summed.partition, list(summed.items())) == (1, [(b"c", 2), (b"b", 1)])
    assert summed.statistics == DocumentStatistics(documents=4, bytes=20)
    assert not (tmp_path / "scratch").exists()


def test_a_shard_that_is_alone_is_not_written_again(tmp_path: Path) -> None:
    shard = Shard.pack(0, [(b"a", 1)])
    alone, small = CountMerger(AMPLE, Scratch(tmp_path), order="bytes"), MemoryBudget(1 << 30, 8)
    (same,) = alone([shard])
    assert same.path is None
    assert list(same.items()) == [(b"a", 1)]
    (written,) = CountMerger(small, Scratch(tmp_path), order="bytes")([shard])  # too large to be sent
    assert written.path is not None
    (same,) = alone([written])
    assert same.path == written.path


def test_the_smallest_files_are_summed_first(tmp_path: Path) -> None:
    """Of five files, if three may be open, the three smallest are summed first."""
    scratch = Scratch(tmp_path / "scratch")
    sizes = [50, 1, 40, 2, 3]
    shards = [Shard.pack(0, [(b"%d" % i, 1) for i in range(10, 10 + n)], scratch.new_path("c")) for n in sizes]
    [result] = CountMerger(AMPLE, scratch, max_open=3)(shards)
    before = sum((shard.spilled for shard in shards), start=Spilled())
    assert result.spilled == before + Spilled(1, 3 * 14)  # the result is in memory
    assert len(result) == 50


def test_a_sum_beyond_64_bits_raises_in_every_path(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    for memory in (AMPLE, MemoryBudget(1, 1)):
        for path in (None, scratch.new_path("a")):
            shards = [Shard.pack(0, [(b"a", 2**62)], path), Shard.pack(0, [(b"a", 2**62)])]
            with pytest.raises(CountOverflowError, match="64 bits"):
                list(CountMerger(memory, scratch)(shards))
    shards = [Shard.pack(0, [(b"a", 2**62)], scratch.new_path("a")) for _ in range(5)]
    with pytest.raises(CountOverflowError, match="64 bits"):
        list(CountMerger(AMPLE, scratch, max_open=2)(shards))


def test_without_the_native_library_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [{b"%d" % (i * i % 977): i % 7 + 1 for i in range(k * 300)} for k in range(1, 6)]
    results = []
    for native in (True, False):
        scratch = Scratch(tmp_path / str(native))
        if not native:

            def unavailable(*_: object) -> None:
                raise NativeUnavailableError("not here")

            monkeypatch.setattr("bpeflow.counting.kway.NativeKWaySum", unavailable)
            assert isinstance(kway.kway_sum([], "bytes", 1), kway.PythonKWaySum)
        shards = [Shard.pack(0, sorted(table.items()), scratch.new_path("counter")) for table in tables]
        [result] = CountMerger(MemoryBudget(4000, 4000), scratch, max_open=2)(shards)
        assert result.path is not None
        results.append(result.path.read_bytes())
    assert results[0] == results[1]
    assert result.tokens == len(canonical(tables))


MEMORY = MemoryBudget(1 << 20, 1 << 20)


def written(tables: list[dict[bytes, int]], folder: Path, every: int) -> list[Shard]:
    """Write each table as a durable shard with marks."""
    shards = []
    for number, table in enumerate(tables):
        with kway_sum([Shard.pack(0, sorted(table.items()))], "bytes", 1 << 14) as total:
            shard = total.write(folder / f"{number}.shard", every)
        shards.append(Shard(0, len(shard), shard.size, path=shard.path, durable=True, marks=shard.marks))
    return shards


def sums(tasks: list[RangeSum], folder: Path) -> PretokenCounts:
    merger = CountMerger(MEMORY, Scratch(folder))
    return reduce_shards([*merger.sum_ranges(tasks)], MEMORY)[0]


def total(tables: list[dict[bytes, int]]) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for table in tables:
        counts.update(table)
    return counts


@pytest.mark.slow
@settings(max_examples=40)
@given(
    tables=st.lists(st.dictionaries(st.text("ab\0", min_size=1, max_size=12).map(str.encode), st.integers(1, 9))),
    every=st.integers(1, 60),
    parts=st.integers(1, 9),
)
def test_sums_of_ranges_are_the_sum_of_all(tables: list[dict[bytes, int]], every: int, parts: int) -> None:
    with TemporaryDirectory() as name:
        shards = written(tables, Path(name), every)
        tasks = divide(shards, parts)
        assert 1 <= len(tasks) <= parts
        limits = [task.key_range for task in tasks]
        assert [limits[0].low, *(limit.low for limit in limits[1:]), limits[-1].high] == [
            None,
            *(limit.high for limit in limits),
        ]
        for task in tasks:
            own = {token for shard in task.shards for token, _ in shard.items()}
            assert {token for token in total(tables) if task.key_range.has(token)} <= own
        assert sums(tasks, Path(name)) == PretokenCounts.from_mapping(total(tables))
        assert all(shard.path is not None and shard.path.exists() for shard in shards)


def random_tables(count: int) -> list[dict[bytes, int]]:
    choose = random.Random(5)
    words = [choose.randbytes(choose.randrange(1, 20)) for _ in range(4000)]
    return [{word: choose.randrange(1, 9) for word in choose.sample(words, 2000)} for _ in range(count)]


def test_ranges_have_about_the_same_size(tmp_path: Path) -> None:
    shards = written(random_tables(5), tmp_path, 500)
    tasks = divide(shards, 4)
    assert len(tasks) == 4
    everything = sum(shard.size for shard in shards)
    assert all(0.8 * everything / 4 < task.size < 1.3 * everything / 4 for task in tasks)
    assert sums(tasks, tmp_path) == PretokenCounts.from_mapping(total(random_tables(5)))


def test_many_files_are_summed_in_several_passes(tmp_path: Path) -> None:
    tables = random_tables(7)
    shards = written(tables, tmp_path, 500)
    merger = CountMerger(MEMORY, Scratch(tmp_path), max_open=2)
    counts, _ = reduce_shards([*merger.sum_ranges(divide(shards, 3))], MEMORY)
    assert counts == PretokenCounts.from_mapping(total(tables))


def test_without_marks_there_is_one_range(tmp_path: Path) -> None:
    tables = random_tables(2)
    (task,) = divide(written(tables, tmp_path, 1 << 20), 4)
    assert task.key_range == EVERYTHING
    assert divide([], 4) == [RangeSum(EVERYTHING, ())]


@pytest.mark.parametrize("which", chosen(["python", "native"]))
def test_marks_are_records_about_every_so_many_bytes(tmp_path: Path, which: str) -> None:
    long = [b"b" * MARK_LENGTH + bytes([number]) for number in range(20)]  # too long for a mark
    items = [(b"a%03d" % number, 1) for number in range(100)] + [(token, 1) for token in long] + [(b"c", 7)]
    shard = Shard.pack(0, items)
    with kway_sum([shard], "bytes", 64) if which == "native" else PythonKWaySum([shard], "bytes") as summed:
        marks = summed.write(tmp_path / "shard", 160).marks
    record = 16
    expected = [Mark(b"a%03d" % number, number * record, number) for number in range(10, 100, 10)]
    assert marks == (*expected, Mark(b"c", shard.size - 13, 120))


@pytest.mark.parametrize("which", chosen(["python", "native"]))
def test_a_sum_is_limited_to_its_range(which: str) -> None:
    words = [b"", b"\0", b"a", b"a\0", b"aaaaaaaa", b"aaaaaaaa\0", b"aaaaaaaab", b"b", b"\xff" * 9]
    shards = [Shard.pack(0, [(word, 1) for word in words if word]) for _ in range(2)]
    for low in (None, *words):
        for high in (None, *words):
            limits = KeyRange(low, high)
            new = kway_sum(shards, "bytes", 64, limits) if which == "native" else PythonKWaySum(shards, "bytes", limits)
            with new as summed:
                summed.gather(1 << 16)
                found = sorted(summed.gathered().items())
            assert found == [(word, 2) for word in words if word and limits.has(word)], (low, high)
