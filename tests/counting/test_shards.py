"""Shards: the same records in memory and in files, and errors for files that cannot be read or written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bpeflow.counting.shards import Shard
from bpeflow.errors import CountOverflowError, ScratchError

ITEMS = [(b"a", 3), (b"a\0", 1), (b"long" * 10_000, 2**63 - 1), (b"\xff", 7)]


def test_records_are_the_same_in_memory_and_in_files(tmp_path: Path) -> None:
    in_memory, in_file = Shard.pack(5, ITEMS), Shard.pack(5, ITEMS, tmp_path / "shard")
    assert list(in_memory.items()) == list(in_file.items()) == ITEMS
    assert in_memory.data == (tmp_path / "shard").read_bytes()
    assert (in_file.tokens, in_file.size) == (4, in_memory.size)
    assert in_file.token_bytes == sum(len(token) for token, _ in ITEMS)


def test_only_the_name_of_a_file_is_pickled(tmp_path: Path) -> None:
    shard = Shard.pack(0, ITEMS, tmp_path / "shard")
    assert len(pickle.dumps(shard)) < 1000
    assert pickle.loads(pickle.dumps(shard)) == shard


def test_a_count_beyond_64_bits_raises(tmp_path: Path) -> None:
    for path in (None, tmp_path / "shard"):
        with pytest.raises(CountOverflowError, match="64 bits"):
            Shard.pack(0, [(b"a", 2**63)], path)


def test_an_unwritable_file_is_an_error_with_the_remedy() -> None:
    items = [(b"a" * 100_000, 1)]
    with pytest.raises(ScratchError, match=r"cannot write counts to /no/such/shard: .*scratch_dir .*memory_limit"):
        Shard.pack(0, items, Path("/no/such/shard"))


def test_removing_a_file_is_idempotent(tmp_path: Path) -> None:
    shard = Shard.pack(0, ITEMS, tmp_path / "shard")
    shard.remove()
    shard.remove()
    Shard.pack(0, ITEMS).remove()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ScratchError, match="cannot read"):
        list(shard.items())
