"""Sorted shards of counts: native and Python k-way sums are equal, and damaged shards are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bpeflow.counting.kway import KWaySum, PythonKWaySum
from bpeflow.counting.native_kway import NativeKWaySum
from bpeflow.counting.shards import Order, Shard
from bpeflow.errors import CountOverflowError, FormatError, ScratchError
from fuzzing.choices import Choices
from fuzzing.difference import REFUSED, must_equal, outcome
from fuzzing.words import make_words

Items = list[tuple[bytes, int]]

_ERRORS = (CountOverflowError, FormatError, ScratchError)


def check(data: bytes) -> None:
    choices = Choices(data)
    order: Order = choices.one_of(("bytes", "count"))
    buffer_size, memory = choices.below(80) + 1, choices.one_of((1, 50, 300, 1 << 20))
    with TemporaryDirectory() as name:
        shards = list(_make_shards(choices, order, Path(name)))
        case = f"{order}, {buffer_size}, {[(shard, _content(shard)) for shard in shards]}"
        specified = outcome(_ERRORS, _write, PythonKWaySum(shards, order), Path(name) / "python")
        native = outcome(_ERRORS, _write, NativeKWaySum(shards, order, buffer_size), Path(name) / "native")
        if native != REFUSED or not _has_duplicates(specified, order):
            must_equal(case, native, specified)
        if order == "count":  # the Python sum checks more here: native code may accept a bad shard, but do no harm
            outcome(_ERRORS, NativeKWaySum(shards, order, buffer_size).counts)
        else:
            gathered = outcome(_ERRORS, _gather, NativeKWaySum(shards, order, buffer_size), memory)
            must_equal(f"gathered in {memory} bytes, {case}", gathered, specified)


def _write(kway: KWaySum, path: Path) -> Items:
    with kway:
        return list(kway.write(path).items())


def _gather(kway: KWaySum, memory: int) -> Items:
    """Return the items of all pieces that fit the memory. Each piece must be in canonical order."""
    items: Items = []
    with kway:
        while not kway.ended:
            size = kway.gather(memory)
            piece = list(kway.gathered().items())
            must_equal("canonical order", piece, sorted(piece, key=_canonical))
            must_equal(f"{size} bytes in {memory}", size <= memory or len(piece) == 1, True)
            items += sorted(piece)
    return items


def _make_shards(choices: Choices, order: Order, folder: Path) -> Iterator[Shard]:
    """Yield shards in memory and in files. Some are out of order or do not match their metadata."""
    used: set[bytes] = set()
    for number in range(choices.below(7)):
        table = make_words(choices)
        items = sorted(table.items(), key=_canonical if order == "count" else None)
        defect = choices.below(24)
        if order == "count" and defect != 1:
            items = [item for item in items if item[0] not in used]
            used |= table.keys()
        if defect == 2 and items:
            items.append(items[choices.below(len(items))])
        path = folder / f"{number}.shard" if choices.flag() and items else None
        shard = Shard.pack(0, items, path)
        yield shard if defect < 16 or not items else _damage(choices, shard, defect)


def _damage(choices: Choices, shard: Shard, defect: int) -> Shard:
    content = bytearray(_content(shard))
    for _ in range(choices.below(4) if defect < 20 else 0):
        content[choices.below(len(content))] = choices.below(256)
    if defect in (18, 20):
        del content[choices.below(len(content)) :]
    if defect in (19, 21):
        content += choices.take(choices.below(30))
    tokens = max(1, shard.tokens + choices.below(7) - 3) if defect == 22 else shard.tokens
    if shard.path is None:
        return Shard.in_memory(0, tokens, bytes(content))
    shard.path.write_bytes(content)
    if defect == 23:
        shard.path.unlink()
    return replace(shard, tokens=tokens, size=len(content) if choices.flag() else shard.size)


def _has_duplicates(items: Any, order: Order) -> bool:
    """Whether a pre-token occurs twice. In canonical order that is an error which only one of the sums detects."""
    return order == "count" and items != REFUSED and len(dict(items)) < len(items)


def _content(shard: Shard) -> bytes:
    if shard.path is None:
        return bytes(shard.data or b"")
    return shard.path.read_bytes() if shard.path.exists() else b""


def _canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]
