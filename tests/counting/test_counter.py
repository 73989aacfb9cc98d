"""The counter: each pre-token is in the shard of its partition, and a table that exceeds its share is spilled."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from rules import rules

from bpeflow.corpus.documents import Chunk, DocumentStatistics
from bpeflow.counting.budget import MIN_SHARE, MemoryBudget
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.shards import Scratch, Shard, Spilled, owned_partitions
from bpeflow.counting.table import new_table
from bpeflow.pretokenize.native import Scanner
from bpeflow.pretokenize.regex import load_pretokenizer

AMPLE = MemoryBudget(1 << 30, 1 << 30)
TIGHT = MemoryBudget(MIN_SHARE, MIN_SHARE)


def counter(scanner: Scanner, scratch: Path, memory: MemoryBudget = AMPLE, mergers: int = 1) -> ChunkCounter:
    counted = ChunkCounter(rules(), mergers, memory, Scratch(scratch))
    assert counted.rules.scanner == scanner  # by the fixture
    return counted


def chunks_of(path: Path, text: bytes, size: int) -> list[Chunk]:
    """Cut a text of lines into chunks, each of whole lines."""
    path.write_bytes(text)
    chunks, offset = [], 0
    while offset < len(text):
        end = text.find(b"\n", offset + size) + 1 or len(text)
        chunks.append(Chunk(str(path), offset, end - offset, end == len(text)))
        offset = end
    return chunks


def many_words() -> bytes:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    return b"".join(b"the%d word\n" % choose.randrange(10**12) for _ in range(60_000))


def total(shards: list[Shard]) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for shard in shards:
        for token, count in shard.items():
            counts[token] += count
    return counts


def test_every_merger_gets_the_partitions_that_it_owns(scanner: Scanner, tmp_path: Path) -> None:
    chunks = chunks_of(tmp_path / "text", many_words()[:20_000], 5_000)
    for chunk in chunks:
        shards = list(counter(scanner, tmp_path / "s", mergers=4)([chunk]))
        assert [shard.merger for shard in shards] == [0, 1, 2, 3]
        assert [shard.partitions for shard in shards] == owned_partitions(4)
        assert all(len(shard) for shard in shards)


def test_a_table_within_its_share_is_sent_in_memory(scanner: Scanner, tmp_path: Path) -> None:
    text = b"low lower newest\n" * 1000
    [shard] = counter(scanner, tmp_path / "s", TIGHT)(chunks_of(tmp_path / "text", text, 1000))
    assert dict(shard.items()) == {b"low": 1000, b" lower": 1000, b" newest": 1000, b"\n": 1000}
    assert shard.spilled == Spilled()
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mergers", [1, 3])
def test_a_table_beyond_its_share_is_spilled(scanner: Scanner, tmp_path: Path, mergers: int) -> None:
    text = many_words()
    chunks = chunks_of(tmp_path / "text", text, 10_000)
    shards = list(counter(scanner, tmp_path / "s", TIGHT, mergers)(chunks))
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.count(text)
    assert len(shards) > 2 * mergers
    assert all(shard.path is not None for shard in shards if len(shard))
    assert total(shards) == dict(table.shard().items())
    assert sum((shard.statistics for shard in shards), start=DocumentStatistics()).bytes == len(text)
    assert sum((shard.spilled for shard in shards), start=Spilled()).bytes == sum(
        path.stat().st_size for path in (tmp_path / "s").iterdir()
    )


def test_a_table_too_large_to_be_sent_is_spilled(scanner: Scanner, tmp_path: Path) -> None:
    share = 60_000 * 700
    [shard] = counter(scanner, tmp_path / "s", MemoryBudget(share, share))(
        chunks_of(tmp_path / "t", many_words(), 100_000)
    )
    # The limit is 350 bytes per word. A word takes about 400 in a regex table and 100 in a native one.
    assert (shard.path is not None) == (scanner == "regex")
