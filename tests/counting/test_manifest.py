"""The folder of segments: when it is refused, and errors when it cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from segmented import counter, fail_after, make_folder

from bpeflow.counting.fingerprint import MANIFEST_FILE, setting_changes
from bpeflow.counting.pipelines import PipelineBuilder
from bpeflow.errors import BpeflowError, CorpusError, ResumeError, ScratchError
from bpeflow.flow import Executor
from bpeflow.run_dir.layout import SEGMENTS

# ---- refusals ----


def touch(corpus: Path) -> None:
    os.utime(corpus / "a", ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (touch, {}, "corpus/a has been modified since"),
        (lambda corpus: os.truncate(corpus / "c", 9), {}, r"corpus/c had [\d,]+ bytes and has \d+"),
        (lambda corpus: (corpus / "d").unlink(), {}, "corpus/d is gone"),
        (None, {"exclude": ["**/d"]}, "corpus/d is not among the inputs now"),
        (lambda corpus: (corpus / "f").touch(), {}, "corpus/f is new"),
        (None, {"pattern": "cl100k"}, r"pattern: .* → "),
        (
            None,
            {"special_tokens": ["low"]},
            r"special_tokens: \['<\|endoftext\|>'\] → \['low'\].*; separator: ",
        ),
        (None, {"invalid_utf8": "skip"}, "invalid_utf8: 'error' → 'skip'"),
        (None, {"bad_records": "skip"}, "bad_records: 'error' → 'skip'"),
        (None, {"separator": "low"}, r"separator: '<\|endoftext\|>' → 'low'"),
    ],
)
def test_segments_of_another_corpus_or_other_settings_are_refused(
    corpus: Path,
    tmp_path: Path,
    change: Callable[[Path], object] | None,
    options: dict[str, object],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_after(2, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run" / SEGMENTS).iterdir()}
    if change:
        change(corpus)
    with pytest.raises(ResumeError, match=rf"counts something else \(.*{message}.*restart=True"):
        counter(corpus, tmp_path / "run", segment_size="8kb", **options).count()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run" / SEGMENTS).iterdir()} == before


def test_changes_are_named_by_their_path() -> None:
    """Not as two long values that look the same when they are cut."""
    source = {"name": "a", "exclude": [], "paths": ["a_long_path"] * 20, "weight": 2}
    before = {"sources": [source, source], "engine": {"kind": "local"}}
    now = {"sources": [source, {**source, "weight": 3}], "engine": {"kind": "ray"}}
    assert setting_changes(before, now) == ["sources.1.weight: 2 → 3", "engine.kind: 'local' → 'ray'"]
    custom = {"pattern": "a|b", "unmatched": "isolate"}
    assert setting_changes(custom, {"pattern": "gpt2"}) == ["pattern: 'a|b' → 'gpt2'"]
    assert setting_changes(custom, {**custom, "unmatched": "drop"}) == ["unmatched: 'isolate' → 'drop'"]
    assert setting_changes({"sizes": [1]}, {"sizes": [1, 2]}) == ["sizes: [1] → [1, 2]"]


def test_settings_that_the_counts_do_not_depend_on_may_change(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(2, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    options = {"num_counter": 2, "num_merger": 3, "chunk_size": 500, "memory_limit": "20mb", "segment_size": "1gb"}
    parts = counter(
        Path("corpus"), tmp_path / "run", **options, executor="processes", separator="<|endoftext|>"
    ).count()
    assert parts.counts == counter(corpus, None).count().counts
    assert parts.counting.segments is not None
    assert (parts.counting.segments.segments, parts.counting.segments.resumed) == (3, 2)


@pytest.mark.parametrize("change", [touch, lambda corpus: (corpus / "a").unlink()])
def test_a_file_that_changes_while_it_is_counted_is_an_error(
    corpus: Path, tmp_path: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = PipelineBuilder.counting

    def changing(self: PipelineBuilder, *rest: object) -> object:
        pipeline = counting(self, *rest)  # type: ignore[arg-type]
        run = pipeline.run

        def run_and_change(executor: Executor) -> Iterator[object]:
            yield from run(executor)
            change(corpus)

        monkeypatch.setattr(pipeline, "run", run_and_change)
        return pipeline

    monkeypatch.setattr(PipelineBuilder, "counting", changing)
    with pytest.raises(CorpusError, match=r"corpus/a"):
        counter(corpus, tmp_path / "run", segment_size="4kb").count()
    assert [path.name for path in (tmp_path / "run" / SEGMENTS).iterdir()] == [MANIFEST_FILE]


# ---- a full disk ----


@pytest.mark.parametrize("name", ["000001.shard", "000001.json"])
def test_a_full_disk_keeps_finished_segments(
    corpus: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    fail_after(1, counter(corpus, run, segment_size="8kb"), monkeypatch)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if name in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        expected = (
            rf"cannot write counts to {run}/segments/{name}: No space left on device\. Make room on its disk, "
            "then resume: finished segments are kept"
        )
        with pytest.raises(ScratchError, match=expected):
            counter(corpus, run, segment_size="8kb").count()
    assert not list((run / SEGMENTS).glob(".*"))
    parts = counter(corpus, run, segment_size="8kb").count()
    assert parts.counts == counter(corpus, None).count().counts
    assert parts.counting.segments is not None
    assert parts.counting.segments.resumed == 1


def test_a_folder_that_cannot_be_created_is_an_error(corpus: Path, tmp_path: Path) -> None:
    (make_folder(tmp_path / "run") / SEGMENTS).write_text("a file")
    with pytest.raises(BpeflowError, match=r"cannot write .*segments: "):
        counter(corpus, tmp_path / "run", segment_size="8kb").count()
