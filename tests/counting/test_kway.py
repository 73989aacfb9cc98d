"""The k-way sum: both implementations give the counts of a dictionary; damage and overflow are errors."""

from __future__ import annotations

import random
import resource
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from available import chosen, skip_missing
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.merger import NativeSum, PythonSum
from bpeflow.counting.shards import PARTITIONS, RECORD, Shard, partition_of
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

NewSum = Callable[[Sequence[Shard], int], NativeSum | PythonSum]


@pytest.fixture(params=chosen(["python", "native"]))
def new_sum(request: pytest.FixtureRequest) -> NewSum:
    """The constructor of each implementation in turn."""
    if request.param == "python":
        return PythonSum
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    return NativeSum


# Shared prefixes, zero bytes (which could be confused with padding), and lengths around 8, 16 and a buffer's size.
words = st.one_of(
    st.text("a\0b", min_size=1, max_size=20).map(str.encode),
    st.binary(min_size=1, max_size=12),
    st.integers(1, 60).map(lambda length: b"\xff" * length),
)
tables = st.lists(st.dictionaries(words, st.integers(1, 2**50) | st.integers(1, 3), max_size=40), max_size=9)


def packed(tables: Sequence[dict[bytes, int]], folder: Path) -> list[Shard]:
    """Pack the tables as shards, alternately in memory and in files."""
    return [
        Shard.pack(table.items(), folder / f"{number}.shard" if number % 2 else None)
        for number, table in enumerate(tables)
    ]


def parts_of(shards: Sequence[Shard], partition: int) -> list[Shard]:
    """Return a partition of the shards that have it."""
    return [part for part in (shard.select(range(partition, partition + 1)) for shard in shards) if len(part)]


def totals(tables: Sequence[dict[bytes, int]]) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for table in tables:
        total.update(table)
    return total


@pytest.mark.slow
@settings(max_examples=50)
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_partitions_of_shards_add_up(new_sum: NewSum, tables: list[dict[bytes, int]], buffer_size: int) -> None:
    found: dict[bytes, int] = {}
    with TemporaryDirectory() as name:
        shards = packed(tables, Path(name))
        for partition in range(PARTITIONS):
            if parts := parts_of(shards, partition):
                in_memory = new_sum(parts, buffer_size).write()
                in_file = new_sum(parts, buffer_size).write(Path(name) / f"sum{partition}")
                assert in_memory.partitions == in_file.partitions == range(partition, partition + 1)
                assert (in_memory.tokens, in_memory.sizes) == (in_file.tokens, in_file.sizes)
                assert in_file.path is not None
                assert in_file.path.read_bytes() == in_memory.data
                assert in_file.spilled.bytes == in_file.size == in_file.path.stat().st_size
                items = list(in_memory.items())
                assert items == sorted(items)
                found.update(items)
    assert found == totals(tables)


@pytest.mark.slow
@settings(max_examples=50)
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_partitions_become_counts_in_canonical_order(
    new_sum: NewSum, tables: list[dict[bytes, int]], buffer_size: int
) -> None:
    total = totals(tables)
    with TemporaryDirectory() as name:
        [shard] = packed([total], Path(name))
        in_file = Shard.pack(total.items(), Path(name) / "all")
        sources = (shard, in_file) if len(shard) else (shard,)
        parts = [parts_of([sources[partition % len(sources)]], partition) for partition in range(PARTITIONS)]
        counts = new_sum([part for own in parts for part in own], buffer_size).counts()
    assert counts == PretokenCounts.from_mapping(total)


def test_large_counts_are_sorted_like_small_ones(new_sum: NewSum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpeflow.counting.merger._STEP", 1000)
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    table = {b"%d" % number: choose.choice([1, 4094, 4095, 4096, 4097, 2**40]) for number in range(5000)}
    shard = Shard.pack(table.items())
    parts = [part for partition in range(PARTITIONS) for part in parts_of([shard], partition)]
    assert new_sum(parts, 1).counts() == PretokenCounts.from_mapping(table)


def test_the_counts_of_nothing_are_empty(new_sum: NewSum) -> None:
    assert len(new_sum([], 1).counts()) == 0


def test_more_files_than_a_process_may_open_are_summed(new_sum: NewSum, tmp_path: Path) -> None:
    shards = [Shard.pack([(b"a", 1), (b"b" * number, 1)], tmp_path / str(number)) for number in range(1, 300)]
    found: dict[bytes, int] = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        for partition in range(PARTITIONS):
            if new_sum is NativeSum and (parts := parts_of(shards, partition)):
                found.update(new_sum(parts, 16).write().items())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert new_sum is not NativeSum or found == {b"a": 299} | {b"b" * number: 1 for number in range(1, 300)}


def one_partition(*words: bytes) -> dict[bytes, int]:
    """Return words of the same partition, made by adding a number to each of these."""
    found: dict[bytes, int] = {}
    for number, word in enumerate(words, 1):
        found[next(made for n in range(10**6) if partition_of(made := word + b"%d" % n) == 0)] = number
    return found


def test_a_word_may_be_longer_than_a_buffer(new_sum: NewSum, tmp_path: Path) -> None:
    table = one_partition(b"a", b"a" * 1_000_000)
    shards = [Shard.pack(table.items(), tmp_path / f"{number}") for number in range(3)]
    summed = new_sum(parts_of(shards, 0), 16).write(tmp_path / "written")
    assert dict(summed.items()) == {word: 3 * count for word, count in table.items()}


@pytest.mark.parametrize("files", [False, True])
def test_a_sum_beyond_64_bits_raises(new_sum: NewSum, tmp_path: Path, files: bool) -> None:
    small, large = one_partition(b"a", b"b")
    tables = [{small: 1, large: 2**62}, {large: 2**62 - 1}, {large: 1}]
    paths = [tmp_path / f"{number}" if files else None for number in range(3)]
    shards = [Shard.pack(table.items(), path) for table, path in zip(tables, paths, strict=True)]
    parts = parts_of(shards, 0)
    assert list(new_sum(parts[:2], 64).write().items()) == [(small, 1), (large, 2**63 - 1)]
    for path in (None, tmp_path / "written"):
        with pytest.raises(CountOverflowError, match="64 bits"):
            new_sum(parts, 64).write(path)


def record(word: bytes, count: int, length: int | None = None) -> bytes:
    return RECORD.pack(len(word) if length is None else length, count) + word


GOOD = record(b"a", 1) + record(b"bc", 2) + record(b"d", 3)
DAMAGE = {
    "cut short": GOOD[:-1],
    "empty": b"",
    "out of order": record(b"b", 1) + record(b"ac", 2) + record(b"d", 3),
    "length too great": record(b"a", 1) + record(b"bc", 2, 2**32 - 1) + record(b"d", 3),
    "length too small": record(b"a", 1) + record(b"bc", 2, 1) + record(b"d", 3),
    "no length": record(b"a", 1) + record(b"bc", 2, 0) + record(b"d", 3),
    "count of 0": record(b"a", 1) + record(b"bc", 0) + record(b"d", 3),
    "negative count": record(b"a", 1) + record(b"bc", -2) + record(b"d", 3),
    "fewer records": record(b"a", 1) + record(b"bc" + RECORD.pack(1, 3) + b"d", 2),
}


def shard_of(tokens: int, size: int, path: Path | None = None, data: bytes = b"") -> Shard:
    """Return a shard of one partition with these records, which need not be valid."""
    if path is not None:
        return Shard.in_file(range(1), [tokens], [size], path)
    return Shard(range(1), (tokens,), (size,), bytearray(data))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("buffer_size", [1, 1000])
def test_a_damaged_file_is_an_error_that_names_it(
    new_sum: NewSum, tmp_path: Path, damage: str, buffer_size: int
) -> None:
    path = tmp_path / "bad.shard"
    path.write_bytes(DAMAGE[damage])
    good = record(b"a", 1) + record(b"z", 1)
    shards = [shard_of(2, len(good), data=good), shard_of(3, len(GOOD), path)]
    with pytest.raises(ScratchError, match=r"bad\.shard have been damaged"):
        new_sum(shards, buffer_size).write()
    with pytest.raises(ScratchError, match=r"bad\.shard have been damaged"):
        new_sum(shards[1:], buffer_size).counts()


@pytest.mark.parametrize("tokens", [2, 3, 2**60])
def test_more_records_than_fit_into_the_size_are_an_error(new_sum: NewSum, tmp_path: Path, tokens: int) -> None:
    path = tmp_path / "bad.shard"
    path.write_bytes(record(b"a", 1))
    with pytest.raises(ScratchError, match=r"bad\.shard have been damaged"):
        new_sum([shard_of(tokens, 13, path)], 64).counts()


@given(data=st.binary(min_size=4 * RECORD.size, max_size=70), tokens=st.integers(1, 4))
def test_arbitrary_bytes_are_read_or_refused(new_sum: NewSum, data: bytes, tokens: int) -> None:
    shard = shard_of(tokens, len(data), data=data)
    for read in (lambda: new_sum([shard], 8).counts(), lambda: new_sum([shard], 8).write()):
        try:
            found = read()
        except FormatError:
            continue
        assert sorted(found.items()) == sorted(shard.items())
        assert len(found) == tokens


def test_records_without_bytes_are_an_error_in_memory_too(new_sum: NewSum) -> None:
    with pytest.raises((FormatError, ScratchError)):
        new_sum([Shard(range(1), (3,), (0,), bytearray())], 64).write()


def test_a_pretoken_in_two_partitions_is_an_error(new_sum: NewSum) -> None:
    shard = shard_of(1, 13, data=record(b"a", 1))
    with pytest.raises(FormatError):
        new_sum([shard, shard], 8).counts()


def test_a_missing_file_is_an_error_that_names_it(new_sum: NewSum, tmp_path: Path) -> None:
    with pytest.raises(ScratchError, match=r"cannot read back the counts in .*gone\.shard: No such file"):
        new_sum([shard_of(1, 13, tmp_path / "gone.shard")], 8).write()


def test_an_unwritable_file_is_an_error_that_names_it(new_sum: NewSum, tmp_path: Path) -> None:
    shard = shard_of(1, 13, data=record(b"a", 1))
    for path in (tmp_path / "not" / "there", tmp_path):
        with pytest.raises(ScratchError, match=f"cannot write counts to {path}: "):
            new_sum([shard], 8).write(path)


def test_a_record_of_another_partition_is_not_lost(new_sum: NewSum) -> None:
    """As damaged content could be. Native code does not look for it, so both add it up where it is."""
    data = bytearray(record(b"a", 5))
    partition = (partition_of(b"a") + 1) % PARTITIONS
    shard = Shard(range(partition, partition + 1), (1,), (len(data),), data)
    assert [*new_sum([shard], 64).write().items()] == [(b"a", 5)]
