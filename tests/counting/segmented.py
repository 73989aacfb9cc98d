"""What tests of segments share: counting that fails in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.segments import SegmentFolder
from bpeflow.run_dir.layout import SEGMENTS


def counter(corpus: Path, run_dir: Path | None, **options: object) -> CorpusCounter:
    values = {"input": str(corpus), **options}
    return CorpusCounter(make_settings(CountSettings, values), run_dir and made(run_dir) / SEGMENTS, scratch_in=run_dir)


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def total(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.iterdir())


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []

    def counting(self, counted_bytes: int, total_bytes: int) -> None:
        self.heard.append((counted_bytes, total_bytes))


@contextmanager
def failing_after(segments: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let counting fail when so many segments are done."""
    count = SegmentFolder._count

    def fail(self: SegmentFolder, number: int, *rest: object) -> None:
        if number == segments:
            raise ZeroDivisionError
        count(self, number, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFolder, "_count", fail)
        yield


def fail_after(segments: int, counting: CorpusCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_after(segments, monkeypatch), pytest.raises(ZeroDivisionError):
        counting.count()
