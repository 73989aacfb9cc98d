"""The merger: one canonical run for each partition, in memory, through files, and in several passes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus import DocumentStatistics
from bpeflow.counting import merge as merging
from bpeflow.counting.memory import Memory
from bpeflow.counting.merger import CountMerger
from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Scratch, Spilled
from bpeflow.errors import CountOverflowError, NativeUnavailable

AMPLE = Memory(1 << 30, 1 << 30)
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
def test_any_number_of_runs_in_any_memory_add_up(
    tables: list[dict[bytes, int]], share: int, max_open: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        scratch = Scratch(Path(name) / "scratch")
        runs = [
            CountRun.pack(0, sorted(table.items()), scratch.new_path("counter") if data.draw(st.booleans()) else None)
            for table in tables
        ]
        written = sum((run.spilled for run in runs), start=Spilled())
        merged = list(CountMerger(Memory(share, share), scratch, max_open)(runs))
        assert [list(run.items()) for run in merged] == ([canonical(tables)] if tables else [])
        left = [run.path for run in merged if run.path is not None]
        assert sorted(scratch.folder.iterdir() if scratch.folder.exists() else []) == left  # what was merged is gone
        assert sum(run.spilled.bytes for run in merged) >= written.bytes
        assert left or sum(run.size for run in merged) <= share // 8
        assert not left or share < 1 << 20


def test_partitions_are_kept_apart_and_statistics_add_up(tmp_path: Path) -> None:
    one = CountRun(1, 0, 0, b"", statistics=DocumentStatistics(documents=2, bytes=10))
    runs = [CountRun.pack(1, [(b"a", 1)]), one, CountRun.pack(0, [(b"b", 1), (b"c", 2)]), one]
    zero, first = CountMerger(AMPLE, Scratch(tmp_path / "scratch"))(runs)
    assert (zero.partition, list(zero.items()), zero.statistics) == (0, [(b"c", 2), (b"b", 1)], DocumentStatistics())
    assert (first.partition, list(first.items())) == (1, [(b"a", 1)])
    assert first.statistics == DocumentStatistics(documents=4, bytes=20)
    assert not (tmp_path / "scratch").exists()


def test_one_pass_merges_what_can_be_open_at_once(tmp_path: Path) -> None:
    """Of five files with three open, three are merged first, the smallest ones."""
    scratch = Scratch(tmp_path / "scratch")
    sizes = [50, 1, 40, 2, 3]
    runs = [CountRun.pack(0, [(b"%d" % i, 1) for i in range(10, 10 + n)], scratch.new_path("c")) for n in sizes]
    [merged] = CountMerger(AMPLE, scratch, max_open=3)(runs)
    before = sum((run.spilled for run in runs), start=Spilled())
    assert merged.spilled == before + Spilled(1, 3 * 14)  # the result is in memory
    assert len(merged) == 50


def test_a_sum_beyond_64_bits_raises_in_every_path(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    for memory in (AMPLE, Memory(1, 1)):
        for path in (None, scratch.new_path("a")):
            runs = [CountRun.pack(0, [(b"a", 2**62)], path), CountRun.pack(0, [(b"a", 2**62)])]
            with pytest.raises(CountOverflowError, match="64 bits"):
                list(CountMerger(memory, scratch)(runs))
    runs = [CountRun.pack(0, [(b"a", 2**62)], scratch.new_path("a")) for _ in range(5)]
    with pytest.raises(CountOverflowError, match="64 bits"):
        list(CountMerger(AMPLE, scratch, max_open=2)(runs))


def test_without_native_library_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [{b"%d" % (i * i % 977): i % 7 + 1 for i in range(k * 300)} for k in range(1, 6)]
    results = []
    for native in (True, False):
        scratch = Scratch(tmp_path / str(native))
        if not native:

            def unavailable(*_: object) -> None:
                raise NativeUnavailable("not here")

            monkeypatch.setattr("bpeflow.counting.native_merge.NativeRunMerge", unavailable)
            assert isinstance(merging.new_merge([], "bytes", 1), merging.PythonRunMerge)
        runs = [CountRun.pack(0, sorted(table.items()), scratch.new_path("counter")) for table in tables]
        [merged] = CountMerger(Memory(4000, 4000), scratch, max_open=2)(runs)
        assert merged.path is not None
        results.append(merged.path.read_bytes())
    assert results[0] == results[1]
    assert merged.tokens == len(canonical(tables))
