"""Runs of counts: merged as in Python; and what is no run, in a file that somebody has damaged, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bpeflow.counting.kway import KWaySum, NativeKWaySum, Order, PythonKWaySum
from bpeflow.counting.shards import Shard
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
        runs = list(_make_runs(choices, order, Path(name)))
        what = f"{order}, {buffer_size}, {[(run, _content(run)) for run in runs]}"
        specified = outcome(_ERRORS, _write, PythonKWaySum(runs, order), Path(name) / "python")
        native = outcome(_ERRORS, _write, NativeKWaySum(runs, order, buffer_size), Path(name) / "native")
        if native != REFUSED or not _has_doubles(specified, order):
            must_equal(what, native, specified)
        if order == "count":  # the Python merge looks closer here: what is no run may be refused, and must do no harm
            outcome(_ERRORS, NativeKWaySum(runs, order, buffer_size).counts)
        else:
            gathered = outcome(_ERRORS, _gather, NativeKWaySum(runs, order, buffer_size), memory)
            must_equal(f"gathered in {memory} bytes, {what}", gathered, specified)


def _write(merge: KWaySum, path: Path) -> Items:
    with merge:
        return list(merge.write(path).items())


def _gather(merge: KWaySum, memory: int) -> Items:
    """All pieces that memory holds, each of which must be in canonical order."""
    items: Items = []
    with merge:
        while not merge.ended:
            size = merge.gather(memory)
            piece = list(merge.gathered().items())
            must_equal("canonical order", piece, sorted(piece, key=_canonical))
            must_equal(f"{size} bytes in {memory}", size <= memory or len(piece) == 1, True)
            items += sorted(piece)
    return items


def _make_runs(choices: Choices, order: Order, folder: Path) -> Iterator[Shard]:
    """Runs in memory and in files; some out of order, or of another content or size than they say."""
    taken: set[bytes] = set()
    for number in range(choices.below(7)):
        table = make_words(choices)
        items = sorted(table.items(), key=_canonical if order == "count" else None)
        trouble = choices.below(24)
        if order == "count" and trouble != 1:
            items = [item for item in items if item[0] not in taken]
            taken |= table.keys()
        if trouble == 2 and items:
            items.append(items[choices.below(len(items))])
        path = folder / f"{number}.run" if choices.flag() and items else None
        run = Shard.pack(0, items, path)
        yield run if trouble < 16 or not items else _damaged(choices, run, trouble)


def _damaged(choices: Choices, run: Shard, trouble: int) -> Shard:
    content = bytearray(_content(run))
    for _ in range(choices.below(4) if trouble < 20 else 0):
        content[choices.below(len(content))] = choices.below(256)
    if trouble in (18, 20):
        del content[choices.below(len(content)) :]
    if trouble in (19, 21):
        content += choices.take(choices.below(30))
    tokens = max(1, run.tokens + choices.below(7) - 3) if trouble == 22 else run.tokens
    if run.path is None:
        return Shard.in_memory(0, tokens, bytes(content))
    run.path.write_bytes(content)
    if trouble == 23:
        run.path.unlink()
    return replace(run, tokens=tokens, size=len(content) if choices.flag() else run.size)


def _has_doubles(items: Any, order: Order) -> bool:
    """Whether one pre-token is there twice, which a run in canonical order must not have, and only one merge sees."""
    return order == "count" and items != REFUSED and len(dict(items)) < len(items)


def _content(run: Shard) -> bytes:
    if run.path is None:
        return bytes(run.data or b"")
    return run.path.read_bytes() if run.path.exists() else b""


def _canonical(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]
