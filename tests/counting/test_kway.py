"""The k-way sum: both implementations give the sums of a dictionary; damage and overflow are errors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from available import chosen, skip_missing
from hypothesis import given, settings
from hypothesis import strategies as st

from bpeflow.counting.counts import PretokenCounts
from bpeflow.counting.kway import KWaySum, PythonKWaySum
from bpeflow.counting.native_kway import NativeKWaySum
from bpeflow.counting.shards import RECORD, Order, Shard
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

Items = list[tuple[bytes, int]]
NewSum = Callable[[Sequence[Shard], Order, int], KWaySum]


@pytest.fixture(params=chosen(["python", "native"]))
def new_sum(request: pytest.FixtureRequest) -> NewSum:
    """The constructor of each implementation in turn."""
    if request.param == "python":
        return lambda shards, order, _: PythonKWaySum(shards, order)
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    return NativeKWaySum


# Shared prefixes, zero bytes (which could be confused with padding), and lengths around 8, 16 and a buffer's size.
words = st.one_of(
    st.text("a\0b", min_size=1, max_size=20).map(str.encode),
    st.binary(min_size=1, max_size=12),
    st.integers(1, 60).map(lambda length: b"\xff" * length),
)
tables = st.lists(st.dictionaries(words, st.integers(1, 2**50) | st.integers(1, 3), max_size=40), max_size=9)


def packed(tables: Sequence[dict[bytes, int]], folder: Path, canonical: bool = False) -> list[Shard]:
    """Pack the tables as shards, alternately in memory and in files."""
    shards = []
    for number, table in enumerate(tables):
        items = sorted(table.items(), key=canonical_order if canonical else None)
        shards.append(Shard.pack(0, items, folder / f"{number}.shard" if number % 2 and items else None))
    return shards


def canonical_order(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def totals(tables: Sequence[dict[bytes, int]]) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for table in tables:
        total.update(table)
    return total


def test_records_are_read_in_blocks(new_sum: NewSum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pre-tokens may be longer than a block."""
    monkeypatch.setattr("bpeflow.counting.kway.BLOCK", 3)
    monkeypatch.setattr("bpeflow.counting.native_kway.BLOCK", 3)
    table = {b"%d" % number: 1 + number for number in range(10)} | {b"x" * 200: 2**61}
    found, sizes = [], []
    with new_sum(packed([table, {}, table], Path()), "bytes", 16) as records:
        for data, offsets, counts in records.blocks():
            starts, ends = offsets[:-1].tolist(), offsets[1:].tolist()
            tokens = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
            found += zip(tokens, counts.tolist(), strict=True)
            sizes.append(len(counts))
        assert records.ended
    assert found == sorted((token, 2 * count) for token, count in table.items())
    assert max(sizes) <= 3
    with new_sum([], "bytes", 16) as records:
        assert not list(records.blocks())


@pytest.mark.slow
@settings(max_examples=50)
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_shards_in_order_of_bytes_add_up(new_sum: NewSum, tables: list[dict[bytes, int]], buffer_size: int) -> None:
    with TemporaryDirectory() as name, new_sum(packed(tables, Path(name)), "bytes", buffer_size) as records:
        written = records.write(Path(name) / "written")
        assert list(written.items()) == sorted(totals(tables).items())
        assert records.ended
        assert written.path is not None
        assert written.size == written.path.stat().st_size


@pytest.mark.slow
@settings(max_examples=50)
@given(tables=tables, buffer_size=st.integers(1, 64), memory=st.sampled_from([1, 50, 300, 10**6]))
def test_gathered_pieces_are_in_canonical_order(
    new_sum: NewSum, tables: list[dict[bytes, int]], buffer_size: int, memory: int
) -> None:
    pieces: list[Items] = []
    with TemporaryDirectory() as name, new_sum(packed(tables, Path(name)), "bytes", buffer_size) as records:
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
    assert [item for piece in pieces for item in sorted(piece)] == sorted(totals(tables).items())
    assert len(pieces) <= 1 or memory < 10**6


@pytest.mark.slow
@settings(max_examples=50)
@given(tables=tables, buffer_size=st.integers(1, 64))
def test_shards_in_canonical_order_become_counts(
    new_sum: NewSum, tables: list[dict[bytes, int]], buffer_size: int
) -> None:
    total = totals(tables)
    parts = [{word: total[word] for word in sorted(total)[start::4]} for start in range(4)]
    with (
        TemporaryDirectory() as name,
        new_sum(packed(parts, Path(name), canonical=True), "count", buffer_size) as records,
    ):
        assert records.counts() == PretokenCounts.from_mapping(total)


def test_large_counts_are_sorted_like_small_ones(new_sum: NewSum) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    table = {b"%d" % number: choose.choice([1, 4094, 4095, 4096, 4097, 2**40]) for number in range(5000)}
    with new_sum([Shard.pack(0, sorted(table.items()))], "bytes", 1) as records:
        records.gather(1 << 20)
        assert list(records.gathered().items()) == sorted(table.items(), key=canonical_order)


def test_the_sum_of_nothing_is_empty(new_sum: NewSum, tmp_path: Path) -> None:
    for shards in ([], [Shard.pack(0, [])]):
        with new_sum(shards, "bytes", 1) as records:
            assert records.ended
            assert records.gather(1000) == 0
            assert len(records.gathered(tmp_path / "shard")) == 0
        with new_sum(shards, "count", 1) as records:
            assert len(records.counts()) == 0
    assert not list(tmp_path.iterdir())


def test_a_word_may_be_longer_than_a_buffer(new_sum: NewSum, tmp_path: Path) -> None:
    word = b"a" * 1_000_000
    shards = [Shard.pack(0, [(b"a", 1), (word, 1)], tmp_path / f"{number}") for number in range(3)]
    with new_sum(shards, "bytes", 16) as records:
        assert list(records.write(tmp_path / "written").items()) == [(b"a", 3), (word, 3)]


@pytest.mark.parametrize("files", [False, True])
def test_a_sum_beyond_64_bits_raises(new_sum: NewSum, tmp_path: Path, files: bool) -> None:
    tables = [{b"a": 1, b"b": 2**62}, {b"b": 2**62 - 1}, {b"b": 1}]
    paths = [tmp_path / f"{number}" if files else None for number in range(3)]
    shards = [Shard.pack(0, sorted(table.items()), path) for table, path in zip(tables, paths, strict=True)]
    with new_sum(shards[:2], "bytes", 64) as records:
        records.gather(1000)
        assert next(records.gathered().items()) == (b"b", 2**63 - 1)
    with new_sum(shards, "bytes", 64) as records, pytest.raises(CountOverflowError, match="64 bits"):
        records.gather(1000)
    with new_sum(shards, "bytes", 64) as records, pytest.raises(CountOverflowError, match="64 bits"):
        records.write(tmp_path / "written")


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
def test_a_damaged_file_is_an_error_that_names_it(
    new_sum: NewSum, tmp_path: Path, damage: str, buffer_size: int
) -> None:
    path = tmp_path / "bad.shard"
    path.write_bytes(DAMAGE[damage])
    shards = [Shard.pack(0, [(b"a", 1), (b"z", 1)]), Shard.in_file(0, 3, len(GOOD), path)]
    with (
        new_sum(shards, "bytes", buffer_size) as records,
        pytest.raises(ScratchError, match=r"bad\.shard have been damaged"),
    ):
        records.gather(1000)


@pytest.mark.parametrize("tokens", [2, 3, 2**60])
def test_more_records_than_fit_into_the_size_are_an_error(new_sum: NewSum, tmp_path: Path, tokens: int) -> None:
    size = Shard.pack(0, [(b"a", 1)], tmp_path / "bad.shard").size
    shard = Shard.in_file(0, tokens, size, tmp_path / "bad.shard")
    with new_sum([shard], "count", 64) as records, pytest.raises(ScratchError, match=r"bad\.shard have been damaged"):
        records.counts()


@given(data=st.binary(min_size=4 * RECORD.size, max_size=70), tokens=st.integers(1, 4))
def test_arbitrary_bytes_are_read_or_refused(new_sum: NewSum, data: bytes, tokens: int) -> None:
    for order in ("bytes", "count"):
        try:
            with new_sum([Shard.in_memory(0, tokens, data)], order, 8) as records:
                if order == "count":
                    records.counts()
                else:
                    records.gather(1000)
        except FormatError:
            continue
        assert len(list(Shard.in_memory(0, tokens, data).items())) == tokens


def test_a_pretoken_in_two_shards_in_canonical_order_is_an_error(new_sum: NewSum) -> None:
    shard = Shard.pack(0, [(b"a", 1)])
    with new_sum([shard, shard], "count", 8) as records, pytest.raises(FormatError):
        records.counts()


def test_a_missing_file_is_an_error_that_names_it(new_sum: NewSum, tmp_path: Path) -> None:
    shard = Shard.pack(0, [(b"a", 1)], tmp_path / "gone.shard")
    shard.remove()
    with (
        new_sum([shard], "bytes", 8) as records,
        pytest.raises(ScratchError, match=r"cannot read back the counts in .*gone\.shard: No such file"),
    ):
        records.gather(1000)


def test_an_unwritable_file_is_an_error_that_names_it(new_sum: NewSum, tmp_path: Path) -> None:
    shard = Shard.pack(0, [(b"a", 1)])
    for path in (tmp_path / "not" / "there", tmp_path):
        with (
            new_sum([shard], "bytes", 8) as records,
            pytest.raises(ScratchError, match=f"cannot write counts to {path}: "),
        ):
            records.write(path)
        with new_sum([shard], "bytes", 8) as records:
            records.gather(1000)
            with pytest.raises(ScratchError, match=f"cannot write counts to {path}: "):
                records.gathered(path)
