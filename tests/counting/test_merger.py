"""The merger: the sum of each partition, in memory and through files; and the reducer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.budget import MemoryBudget
from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merger import CountMerger, PythonSum, kway_sum, reduce_shards
from bpeflow.counting.shards import PARTITIONS, Scratch, Shard, Spilled, owned_partitions
from bpeflow.errors import CountOverflowError, NativeUnavailableError

AMPLE = MemoryBudget(1 << 30, 1 << 30)
tables = st.lists(
    st.dictionaries(st.binary(min_size=1, max_size=20), st.integers(1, 9), min_size=1, max_size=30), max_size=12
)


def total(tables: list[dict[bytes, int]]) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for table in tables:
        counts.update(table)
    return counts


@pytest.mark.slow
@given(tables=tables, share=st.sampled_from([200, 2000, 1 << 20]), mergers=st.integers(1, 5), data=st.data())
def test_any_number_of_shards_add_up_in_any_memory(
    tables: list[dict[bytes, int]], share: int, mergers: int, data: st.DataObject
) -> None:
    memory = MemoryBudget(share, share)
    with TemporaryDirectory() as name:
        scratch = Scratch(Path(name) / "scratch")
        shards = [
            Shard.pack(table.items(), scratch.new_path("counter") if data.draw(st.booleans()) else None)
            for table in tables
        ]
        written = sum((shard.spilled for shard in shards), start=Spilled())
        sums = []
        for merger, owned in enumerate(owned_partitions(mergers)):
            own = list(CountMerger(memory, scratch)(shard.select(owned, merger) for shard in shards))
            assert [shard.partitions for shard in own] == [range(p, p + 1) for p in owned] * bool(tables)
            assert sum(shard.size for shard in own if shard.path is None) <= share // 8
            sums += own
        assert reduce_shards(sums, CountMerger(memory, scratch))[0] == PretokenCounts.from_mapping(total(tables))
        spilled = sum((shard.spilled for shard in sums), start=Spilled())
        files = list(scratch.folder.iterdir()) if scratch.folder.exists() else []
        assert spilled == Spilled(len(files), sum(path.stat().st_size for path in files))
        assert spilled.bytes >= written.bytes


def test_statistics_add_up(tmp_path: Path) -> None:
    one = replace(Shard.pack(()), statistics=DocumentStatistics(documents=2, bytes=10))
    sums = list(CountMerger(AMPLE, Scratch(tmp_path / "scratch"))([Shard.pack([(b"b", 1), (b"c", 2)]), one, one]))
    assert len(sums) == PARTITIONS
    counts, documents = reduce_shards(sums, CountMerger(AMPLE, Scratch(tmp_path)))
    assert list(counts.items()) == [(b"c", 2), (b"b", 1)]
    assert documents == DocumentStatistics(documents=4, bytes=20)
    assert not (tmp_path / "scratch").exists()


def test_a_partition_that_one_shard_has_is_not_written_again(tmp_path: Path) -> None:
    shard = Shard.pack([(b"a", 1)])
    [same] = [part for part in CountMerger(AMPLE, Scratch(tmp_path))([shard]) if len(part)]
    assert same.path is None
    assert list(same.items()) == [(b"a", 1)]
    small = CountMerger(MemoryBudget(1 << 30, 8), Scratch(tmp_path))
    [written] = [part for part in small([shard]) if len(part)]  # too large to be sent
    assert written.path is not None
    assert list(written.items()) == [(b"a", 1)]
    [same] = [part for part in small([Shard.pack([(b"a", 1)], tmp_path / "shard")]) if len(part)]
    assert same.path == tmp_path / "shard"
    assert list(same.items()) == [(b"a", 1)]


def test_a_sum_beyond_64_bits_raises_in_every_path(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    for memory in (AMPLE, MemoryBudget(1, 1)):
        for path in (None, scratch.new_path("a")):
            shards = [Shard.pack([(b"a", 2**62)], path), Shard.pack([(b"a", 2**62)])]
            with pytest.raises(CountOverflowError, match="64 bits"):
                list(CountMerger(memory, scratch)(shards))


def test_without_the_native_library_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [{b"%d" % (i * i % 977): i % 7 + 1 for i in range(k * 300)} for k in range(1, 6)]
    results = []
    for native in (True, False):
        scratch = Scratch(tmp_path / str(native))
        if not native:

            def unavailable(*_: object) -> None:
                raise NativeUnavailableError("not here")

            monkeypatch.setattr("bpeflow.counting.merger.NativeSum", unavailable)
            assert isinstance(kway_sum([], 1), PythonSum)
        shards = [Shard.pack(table.items(), scratch.new_path("counter")) for table in tables]
        sums = list(CountMerger(MemoryBudget(400, 400), scratch)(shards))
        assert all(shard.path is not None for shard in sums if len(shard))
        results.append([b"".join(shard.blocks()) for shard in sums])
        assert reduce_shards(sums, CountMerger(AMPLE, scratch))[0] == PretokenCounts.from_mapping(total(tables))
    assert results[0] == results[1]
