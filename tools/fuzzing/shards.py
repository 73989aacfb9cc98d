"""Sorted shards of counts: native and Python k-way sums are equal, and damaged shards are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bpeflow.counting.merger import NativeSum, PythonSum
from bpeflow.counting.shards import PARTITIONS, Shard
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from fuzzing.choices import Choices
from fuzzing.difference import must_equal, outcome
from fuzzing.words import make_words

Items = list[tuple[bytes, int]]

_ERRORS = (CountOverflowError, FormatError, ScratchError)


def check(data: bytes) -> None:
    choices = Choices(data)
    buffer_size = choices.below(80) + 1
    with TemporaryDirectory() as name:
        shards = list(_make_shards(choices, Path(name)))
        for partition in range(PARTITIONS):
            parts = [part for part in (shard.select(range(partition, partition + 1)) for shard in shards) if len(part)]
            if parts:
                _check_sum(parts, buffer_size, Path(name) / str(partition))
        every = [shard.select(range(number, number + 1)) for shard in shards[:1] for number in range(PARTITIONS)]
        every = [part for part in every if len(part)]
        specified = outcome(_ERRORS, lambda: list(PythonSum(every).counts().items()))
        native = outcome(_ERRORS, lambda: list(NativeSum(every, buffer_size).counts().items()))
        must_equal(f"counts of {every} by {buffer_size} bytes", native, specified)
        # With a pre-token in two shards native code may give other counts, but do no harm.
        outcome(_ERRORS, lambda: NativeSum([shard for shard in shards if len(shard)], buffer_size).counts())


def _check_sum(parts: list[Shard], buffer_size: int, path: Path) -> None:
    case = f"{buffer_size}, {[(part, bytes(part.data or b'')) for part in parts]}"
    specified = outcome(_ERRORS, lambda: list(PythonSum(parts).write().items()))
    for number, target in enumerate((None, path)):
        native = outcome(_ERRORS, lambda target=target: list(NativeSum(parts, buffer_size).write(target).items()))
        must_equal(f"{number}, {case}", native, specified)


def _make_shards(choices: Choices, folder: Path) -> Iterator[Shard]:
    """Yield shards in memory and in files. Some are out of order or do not match their metadata."""
    for number in range(choices.below(7)):
        items = list(make_words(choices).items())
        defect = choices.below(24)
        if defect == 2 and items:
            items.append(items[choices.below(len(items))])
        shard = Shard.pack(items, folder / f"{number}.shard" if choices.flag() else None)
        yield shard if defect < 16 or not items else _damage(choices, shard, defect)


def _damage(choices: Choices, shard: Shard, defect: int) -> Shard:
    content = bytearray(b"".join(shard.blocks()))
    for _ in range(choices.below(4) if defect < 20 else 0):
        content[choices.below(len(content))] = choices.below(256)
    if defect in (18, 20):
        del content[choices.below(len(content)) :]
    if defect in (19, 21):
        content += choices.take(choices.below(30))
    tokens, sizes = list(shard.tokens), list(shard.sizes)
    if defect == 22:
        number = choices.below(PARTITIONS)
        tokens[number] = max(1, tokens[number] + choices.below(7) - 3)
    if choices.flag():
        sizes[choices.below(PARTITIONS)] += len(content) - shard.size
    sizes = [max(0, size) for size in sizes]
    if shard.path is None:  # a part beyond the end cannot be selected
        content += bytes(max(0, sum(sizes) - len(content)))
        return replace(shard, tokens=tuple(tokens), sizes=tuple(sizes), data=content)
    shard.path.write_bytes(content)
    if defect == 23:
        shard.path.unlink()
    return replace(shard, tokens=tuple(tokens), sizes=tuple(sizes))
