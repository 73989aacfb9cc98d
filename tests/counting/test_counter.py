"""The counter: runs that have every pre-token once, in the partition that it belongs to, within its memory."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from bpeflow.corpus import Chunk, Delimiters, DocumentStatistics
from bpeflow.counting.counter import ChunkCounter
from bpeflow.counting.memory import LEAST_SHARE, Memory
from bpeflow.counting.run import CountRun
from bpeflow.counting.scratch import Scratch, Spilled
from bpeflow.counting.table import Scanner, new_table
from bpeflow.pretokenize import load_pretokenizer

AMPLE = Memory(1 << 30, 1 << 30)
TIGHT = Memory(LEAST_SHARE, LEAST_SHARE)


def counter(scanner: Scanner, scratch: Path, memory: Memory = AMPLE, partitions: int = 1) -> ChunkCounter:
    pretokenizer = load_pretokenizer("gpt2")
    return ChunkCounter(Delimiters(None), pretokenizer, scanner, "error", partitions, memory, Scratch(scratch))


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


def total(runs: list[CountRun]) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for run in runs:
        for token, count in run.items():
            counts[token] += count
    return counts


def test_every_pretoken_has_one_owner(scanner: Scanner, tmp_path: Path) -> None:
    chunks = chunks_of(tmp_path / "text", many_words()[:20_000], 5_000)
    first, second = (list(counter(scanner, tmp_path / "s", partitions=4)([chunk])) for chunk in chunks[:2])
    owners = {token: run.partition for run in first for token, _ in run.items()}
    assert {run.partition for run in first} == {0, 1, 2, 3}
    assert all(owners.get(token, run.partition) == run.partition for run in second for token, _ in run.items())


def test_a_table_within_its_share_is_sent_in_memory(scanner: Scanner, tmp_path: Path) -> None:
    text = b"low lower newest\n" * 1000
    [run] = counter(scanner, tmp_path / "s", TIGHT)(chunks_of(tmp_path / "text", text, 1000))
    assert dict(run.items()) == {b"low": 1000, b" lower": 1000, b" newest": 1000, b"\n": 1000}
    assert run.spilled == Spilled()
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_table_beyond_its_share_goes_to_files(scanner: Scanner, tmp_path: Path, partitions: int) -> None:
    text = many_words()
    chunks = chunks_of(tmp_path / "text", text, 10_000)
    runs = list(counter(scanner, tmp_path / "s", TIGHT, partitions)(chunks))
    table = new_table(load_pretokenizer("gpt2"), scanner)
    table.count(text)
    assert len(runs) > 2 * partitions
    assert all(run.path is not None for run in runs if len(run))
    assert total(runs) == dict(table.run().items())
    assert sum((run.statistics for run in runs), start=DocumentStatistics()).bytes == len(text)
    assert sum((run.spilled for run in runs), start=Spilled()).bytes == sum(
        path.stat().st_size for path in (tmp_path / "s").iterdir()
    )


def test_a_table_that_is_large_for_the_queue_goes_to_files(scanner: Scanner, tmp_path: Path) -> None:
    share = 60_000 * 700
    [run] = counter(scanner, tmp_path / "s", Memory(share, share))(chunks_of(tmp_path / "t", many_words(), 100_000))
    assert (run.path is not None) == (scanner == "regex")  # whose tables take some 400 bytes for each, native 100
