"""Shards: the same records in memory and in files, by partition; errors for files that cannot be read or written."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from available import skip_missing
from hypothesis import given
from hypothesis import strategies as st

from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting.shards import PARTITIONS, Shard, Spilled, owned_partitions, partition_of
from bpeflow.counting.table import NativeTable
from bpeflow.errors import CountOverflowError, ScratchError
from bpeflow.pretokenize.native import why_regex
from bpeflow.pretokenize.regex import load_pretokenizer

ITEMS = [(b"a", 3), (b"a\0", 1), (b"long" * 10_000, 2**63 - 1), (b"\xff", 7)]


def test_records_are_the_same_in_memory_and_in_files(tmp_path: Path) -> None:
    in_memory, in_file = Shard.pack(ITEMS), Shard.pack(ITEMS, tmp_path / "shard")
    assert list(in_memory.items()) == list(in_file.items())
    assert sorted(in_memory.items()) == sorted(ITEMS)
    assert in_memory.data == (tmp_path / "shard").read_bytes()
    assert (in_file.tokens, in_file.sizes, len(in_file)) == (in_memory.tokens, in_memory.sizes, 4)
    assert b"".join(in_memory.blocks()) == b"".join(in_file.blocks()) == in_memory.data


def test_partitions_are_selected(tmp_path: Path) -> None:
    """Those of a hash of the pre-token alone, in ascending order of bytes."""
    words = {b"%x" % (number * number): number + 1 for number in range(3000)}
    shards = [
        replace(Shard.pack(words.items(), path), statistics=DocumentStatistics(documents=3))
        for path in (None, tmp_path / "shard")
    ]
    for mergers in (1, 3, PARTITIONS):
        for shard in shards:
            found: dict[bytes, int] = {}
            parts = [shard.select(owned, merger) for merger, owned in enumerate(owned_partitions(mergers))]
            for part in parts:
                for own in [part.select(range(partition, partition + 1)) for partition in part.partitions]:
                    items = list(own.items())
                    assert items == sorted(items)
                    assert {partition_of(token) for token, _ in items} <= {own.partitions.start}
                    assert b"".join(own.blocks()) == b"".join(Shard.pack(items).blocks())
                    assert 0 < len(own) < 3000 / PARTITIONS * 2
                    found.update(items)
            assert found == words
            assert [part.merger for part in parts] == list(range(mergers))
            assert sum((part.statistics for part in parts), start=DocumentStatistics()) == shard.statistics
            assert sum((part.spilled for part in parts), start=Spilled()) == shard.spilled


@given(st.binary(min_size=1, max_size=40))
def test_partitions_are_those_of_native_code(token: bytes) -> None:
    """The hash is in two places."""
    skip_missing("count", why_regex(load_pretokenizer("gpt2")))
    text = token.hex().translate(str.maketrans("0123456789abcdef", "\0!#$%&()*+,-./:;"))[: len(token)]
    table = NativeTable()
    table.count(text.encode())
    [(found, _)] = table.shard().items()
    assert found == text.encode()
    assert [number for number, tokens in enumerate(table.shard().tokens) if tokens] == [partition_of(found)]


def test_only_the_name_of_a_file_is_pickled(tmp_path: Path) -> None:
    shard = Shard.pack(ITEMS, tmp_path / "shard")
    assert len(pickle.dumps(shard)) < 1000
    assert pickle.loads(pickle.dumps(shard)) == shard


def test_a_count_beyond_64_bits_raises(tmp_path: Path) -> None:
    for path in (None, tmp_path / "shard"):
        with pytest.raises(CountOverflowError, match="64 bits"):
            Shard.pack([(b"a", 2**63)], path)


def test_an_unwritable_file_is_an_error_with_the_remedy() -> None:
    items = [(b"a" * 100_000, 1)]
    with pytest.raises(ScratchError, match=r"cannot write counts to /no/such/shard: .*scratch_dir .*memory_limit"):
        Shard.pack(items, Path("/no/such/shard"))


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    shard = Shard.pack(ITEMS, tmp_path / "shard")
    with (tmp_path / "shard").open("r+b") as file:
        file.truncate(shard.size - 1)
    for read in (shard.items, shard.blocks):
        with pytest.raises(ScratchError, match="damaged or truncated"):
            list(read())
    (tmp_path / "shard").unlink()
    for read in (shard.items, shard.blocks):
        with pytest.raises(ScratchError, match="cannot read"):
            list(read())
