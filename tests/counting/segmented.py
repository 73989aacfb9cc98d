"""Helpers for tests of segments: counting that fails after some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bpeflow.config import CountSettings, make_settings
from bpeflow.counting.count import CorpusCounter
from bpeflow.counting.segments import SegmentRecord, count_segment
from bpeflow.progress import Observer
from bpeflow.run_dir.layout import SEGMENTS


def counter(corpus: Path, run_dir: Path | None, **options: object) -> CorpusCounter:
    values = {"input": str(corpus), **options}
    return CorpusCounter(
        make_settings(CountSettings, values), run_dir and make_folder(run_dir) / SEGMENTS, scratch_in=run_dir
    )


def make_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def corpus_size(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.iterdir())


class ProgressRecorder(Observer):
    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []

    def counting(self, counted_bytes: int, total_bytes: int | None) -> None:
        self.calls.append((counted_bytes, total_bytes))


@contextmanager
def failing_after(segments: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make counting fail once this number of segments is finished."""

    def fail(path: Path, *rest: Any) -> SegmentRecord:
        if path.name == f"{segments:06d}.shard":
            raise ZeroDivisionError
        return count_segment(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("bpeflow.counting.segments.count_segment", fail)
        yield


def fail_after(segments: int, counting: CorpusCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_after(segments, monkeypatch), pytest.raises(ZeroDivisionError):
        counting.count()
