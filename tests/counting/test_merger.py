"""The merger: one shard per partition in canonical order, in memory, through files, and in several passes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting import kway
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.shards import Scratch, Shard, Spilled
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
