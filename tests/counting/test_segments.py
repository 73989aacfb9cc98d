"""Segments: the counts do not depend on them; finished ones are resumed and damaged ones counted again."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rules import rules
from segmented import ProgressRecorder, corpus_size, counter, fail_after, failing_after, make_folder

import bpeflow
from bpeflow.corpus.files import InputFile
from bpeflow.corpus.plan import Position, SegmentPlan
from bpeflow.counting import fingerprint as fingerprint_module
from bpeflow.counting.fingerprint import MANIFEST_FILE, has_segments, remove_segments
from bpeflow.counting.pipelines import PipelineBuilder
from bpeflow.counting.segments import SegmentRecord
from bpeflow.counting.shards import Spilled
from bpeflow.errors import ResumeError
from bpeflow.run_dir.layout import SEGMENTS

# ---- the counts ----


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"segment_size": 300, "pattern": r" ?\w+|\W"},
        {"segment_size": "2kb", "chunk_size": 600, "num_counter": 3, "num_merger": 2},
        {"segment_size": "10kb", "invalid_utf8": "skip"},
        {"segment_size": "25kb", "executor": "processes", "num_counter": 2, "num_merger": 2, "chunk_size": 1000},
        {
            "segment_size": "40kb",
            "executor": "processes",
            "num_counter": 1,
            "pattern": r"\w+|\W",
        },
        {"segment_size": "10kb", "pattern": r"\w+|\W"},
    ],
    ids=str,
)
def test_counts_do_not_depend_on_segments(corpus: Path, tmp_path: Path, options: dict[str, object]) -> None:
    whole = counter(corpus, None, **{**options, "executor": "threads"}).count()
    counting = counter(corpus, tmp_path / "run", **options)
    parts = counting.count()
    assert whole.counting.segments is None
    assert parts.counting.segments is not None
    assert parts.counting.segments.segments >= 2
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert parts.counting.spilled.shards == 0
    assert parts.counting.stages["counter"].bytes == corpus_size(corpus)
    assert has_segments(tmp_path / "run" / SEGMENTS)
    counting.forget_segments()
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("executor", [pytest.param("processes", marks=pytest.mark.slow), "threads"])
def test_streams_are_not_divided_and_sources_add_up(
    corpus: Path, tmp_path: Path, executor: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed text, JSON Lines and a sample besides files that are divided, in a run that is resumed."""
    text = (corpus / "c").read_text(encoding="utf-8")
    lines = "".join(json.dumps({"text": part}) + "\n" for part in text.split("<|endoftext|>"))
    streams = make_folder(tmp_path / "streams")
    (streams / "c.gz").write_bytes(gzip.compress(text.encode()))
    (streams / "c.jsonl").write_text(lines, encoding="utf-8")
    values = {
        "input": [
            {"name": "text", "path": str(corpus), "weight": 3},
            {"name": "compressed", "path": str(streams)},
            {"name": "sample", "path": str(corpus / "c"), "max_bytes": 5000},
        ],
        "num_counter": 2,
        "chunk_size": "2kb",
    }
    whole = counter(corpus, None, **values).count()
    run = tmp_path / "run"
    options = {**values, "executor": executor, "segment_size": "20kb"}
    fail_after(2, counter(corpus, run, **options), monkeypatch)
    counting, recorder = counter(corpus, run, **options), ProgressRecorder()
    parts = counting.count(recorder)
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert len(parts.documents.sources) == 3
    assert parts.counting.segments is not None
    assert parts.counting.segments.resumed == 2
    assert parts.counting.segments.segments > 4
    assert recorder.calls[-1] == (counting.corpus.known_bytes, counting.corpus.total_bytes)
    (streams / "c.gz").touch()
    with pytest.raises(ResumeError, match=r"streams/c\.gz has been modified since"):
        counter(corpus, run, **options).count()


def test_an_iterable_is_not_counted_in_segments(tmp_path: Path) -> None:
    """Nor are its counts used to resume a run, as it may have other documents each time."""
    settings = {
        "vocab_size": 258,
        "special_tokens": [],
        "out_dir": str(make_folder(tmp_path / "run")),
        "segment_size": 1,
    }
    bpeflow.train({**settings, "input": iter(["low lower"])})
    assert not has_segments(tmp_path / "run" / SEGMENTS)
    with pytest.raises(ResumeError, match="counted something else"):
        bpeflow.train({**settings, "input": iter(["low lower"]), "resume": True})


@pytest.mark.slow
@settings(max_examples=30)
@given(
    texts=st.lists(st.text("ab é|\n<x>", max_size=80), min_size=1, max_size=4),
    segment_size=st.integers(1, 60),
    chunk_size=st.integers(1, 60),
    killed_after=st.integers(0, 6),
    other_size=st.integers(1, 60),
)
def test_any_sizes_and_any_interruption_give_the_same_counts(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    segment_size: int,
    chunk_size: int,
    killed_after: int,
    other_size: int,
) -> None:
    corpus, run = Path(mkdtemp(dir=tmp_path_factory.getbasetemp())), Path(mkdtemp(dir=tmp_path_factory.getbasetemp()))
    for number, text in enumerate([*texts, "."]):  # so that there is something to count
        (corpus / str(number)).write_bytes(text.encode())
    values = {"special_tokens": ["|", "<x>"], "num_counter": 1, "chunk_size": chunk_size}
    whole = counter(corpus, None, **values).count()
    with pytest.MonkeyPatch.context() as patch:
        try:
            with failing_after(killed_after, patch):
                counter(corpus, run, segment_size=segment_size, **values).count()
        except ZeroDivisionError:
            pass
    parts = counter(corpus, run, segment_size=other_size, **values).count()
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents


def test_a_corpus_of_one_segment_leaves_the_folder_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", None)
    for run_dir, size in ((tmp_path / "run", corpus_size(corpus)), (None, 100)):
        assert counter(corpus, run_dir, segment_size=size).count().counting.segments is None
    assert not list((tmp_path / "run").iterdir())


# ---- resuming ----


def test_a_run_without_a_finished_segment_starts_again_without_a_word(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for done in (0, 2):
        fail_after(done, counter(corpus, tmp_path / "run", segment_size="8kb", chunk_size="2kb"), monkeypatch)
        assert has_segments(tmp_path / "run" / SEGMENTS)
    assert "resuming" not in caplog.text
    counter(corpus, tmp_path / "run", segment_size="8kb", chunk_size="2kb").count()
    assert "resuming 2 segments" in caplog.text


@pytest.mark.parametrize("done", [1, 3])
def test_finished_segments_are_resumed(
    corpus: Path, tmp_path: Path, done: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = counter(corpus, None).count()
    values = {"segment_size": "8kb", "chunk_size": "2kb"}
    fail_after(done, counter(corpus, tmp_path / "run", **values), monkeypatch)
    assert "keeps finished segments" in caplog.text
    recorder = ProgressRecorder()
    parts = counter(corpus, tmp_path / "run", **values).count(recorder)
    progress = recorder.calls
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert parts.counting.segments is not None
    assert parts.counting.segments.resumed == done
    assert parts.counting.segments.segments > done
    assert progress[0] == (parts.counting.segments.resumed_bytes, corpus_size(corpus))
    assert progress[-1] == (corpus_size(corpus), corpus_size(corpus))
    assert [counted for counted, _ in progress] == sorted(counted for counted, _ in progress)
    assert parts.counting.segments.resumed_bytes >= done * 8000
    assert parts.counting.stages["counter"].bytes == corpus_size(corpus)
    assert parts.counting.seconds > parts.counting.segments.resumed_seconds > 0


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("which", [["000000.shard"], ["000001.shard", "000002.shard"]])
def test_a_damaged_segment_is_counted_again(
    corpus: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    which: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = counter(corpus, None).count()
    fail_after(3, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    for name in which:
        damage(tmp_path / "run" / SEGMENTS / name)
    parts = counter(corpus, tmp_path / "run", segment_size="9kb").count()
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert parts.counting.segments is not None
    assert parts.counting.segments.recounted == len(which)
    assert parts.counting.segments.resumed == 3 - len(which)
    for name in which:
        assert f"{name} is damaged or missing: counting its part of the corpus again" in caplog.text


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lambda path: path.write_text("{}")])
def test_a_segment_with_a_damaged_record_is_counted_again(
    corpus: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail_after(3, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    damage(tmp_path / "run" / SEGMENTS / "000001.json")
    parts = counter(corpus, tmp_path / "run", segment_size="3kb").count()
    assert "000001.json is damaged or missing: counting its part of the corpus again" in caplog.text
    assert parts.counting.segments is not None
    assert (parts.counting.segments.resumed, parts.counting.segments.recounted) == (2, 1)
    assert parts.counts == counter(corpus, None).count().counts


def test_segments_may_be_finished_in_any_order(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run counts what no record covers, whatever the size of its own segments."""
    whole = counter(corpus, None).count()
    fail_after(5, counter(corpus, tmp_path / "run", segment_size="4kb"), monkeypatch)
    for number in (0, 1, 3):
        (tmp_path / "run" / SEGMENTS / f"{number:06d}.json").unlink()
    parts = counter(corpus, tmp_path / "run", segment_size="6kb").count()
    assert parts.counting.segments is not None
    assert (parts.counting.segments.resumed, parts.counting.segments.recounted) == (2, 0)
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert parts.counting.stages["counter"].bytes == corpus_size(corpus)


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip_a_bit,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(path.read_text().replace('"version": 4', '"version": 5')),
    ],
)
def test_a_damaged_manifest_is_an_error_with_the_remedy(
    corpus: Path, tmp_path: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(2, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    damage(tmp_path / "run" / SEGMENTS / MANIFEST_FILE)
    with pytest.raises(ResumeError, match=r"manifest\.json is damaged.*restart=True"):
        counter(corpus, tmp_path / "run", segment_size="8kb").count()


def test_a_manifest_of_another_version_is_an_error(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(2, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    monkeypatch.setattr(fingerprint_module, "VERSION", 5)
    with pytest.raises(ResumeError, match="it has version 4, this bpeflow reads 5"):
        counter(corpus, tmp_path / "run", segment_size="8kb").count()


def test_leftovers_are_removed_and_other_files_stay(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    fail_after(2, counter(corpus, run, segment_size="8kb"), monkeypatch)
    ours = ["000002.shard", "000002-0123456789abcdef.shard", ".000002.shard.77.part", ".manifest.json.77.part"]
    ours.append("fingerprint.json")  # of version 1
    for name in (*ours, "notes.txt"):
        (run / SEGMENTS / name).write_text("?")
    counting = counter(corpus, run, segment_size="8kb")
    counting.count()
    counting.forget_segments()
    assert [path.name for path in (run / SEGMENTS).iterdir()] == ["notes.txt"]


def test_a_folder_without_a_manifest_has_no_segments(corpus: Path, tmp_path: Path) -> None:
    folder = make_folder(make_folder(tmp_path / "run") / SEGMENTS)
    (folder / "000000.json").write_text("{}")
    (folder / "000000.shard").write_text("?")
    assert not has_segments(tmp_path / "run" / SEGMENTS)
    parts = counter(corpus, tmp_path / "run", segment_size="8kb").count()
    assert parts.counts == counter(corpus, None).count().counts
    remove_segments(tmp_path / "run" / SEGMENTS)
    remove_segments(tmp_path / "run" / SEGMENTS)
    assert not folder.exists()


def test_a_single_segment_is_not_summed(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after(0, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    monkeypatch.setattr(PipelineBuilder, "summing", None)
    whole, parts = counter(corpus, None).count(), counter(corpus, tmp_path / "run", segment_size="1gb").count()
    assert parts.counting.segments is not None
    assert parts.counting.segments.segments == 1
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents


def test_what_resumed_segments_spilled_is_in_the_report(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(2, counter(corpus, tmp_path / "run", segment_size="8kb"), monkeypatch)
    folder = tmp_path / "run" / SEGMENTS
    record = SegmentRecord.load(folder / "000001.json")
    assert record is not None
    replace(record, spilled=Spilled(3, 1000)).save(folder)
    assert counter(corpus, tmp_path / "run", segment_size="8kb").count().counting.spilled == Spilled(3, 1000)


# ---- where segments end ----


def test_segments_cover_the_corpus_without_gap_or_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)
    find = "bpeflow.corpus.plan.find_boundary"
    monkeypatch.setattr(find, lambda file, at, _: min(at + choose.randrange(3), file.size))
    for _ in range(300):
        files = [InputFile(str(n), choose.choice([0, 1, 7, 30]), plain=True) for n in range(choose.randrange(1, 6))]
        plan = SegmentPlan(files, choose.randrange(1, 40), rules())
        begin, parts, sizes = Position(), [], []
        while begin < plan.end:
            end = plan.end_after(begin)
            assert begin < end
            segment = plan.entries_of(begin, end)
            sizes.append(sum((file.end or file.size) - file.begin for file in segment))
            parts += segment
            begin = end
        assert all(plan.size <= size < plan.size + 3 for size in sizes[:-1])
        for file in files:
            own = [part for part in parts if part.name == file.name]
            ends = [(part.begin, file.size if part.end is None else part.end) for part in own]
            assert [begin for begin, _ in ends] == [0, *(end for _, end in ends)][: len(ends)]
            assert (ends[-1][1] if ends else 0) == file.size


def test_the_order_of_writing_makes_it_durable(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard is synced before it gets its name, and has its name before a record mentions it."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recording_fsync(descriptor: int) -> None:
        steps.append("sync " + re.sub(r"\.\d+\.part$", "", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def recording_replace(self: Path, target: Path) -> Path:
        steps.append(f"name {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "replace", recording_replace)
    counter(corpus, tmp_path / "run", segment_size=corpus_size(corpus) - 1000).count()
    written = ["manifest.json", "000000.shard", "000000.json", "000001.shard", "000001.json"]
    assert steps == [
        "sync run",
        *(step for name in written for step in (f"sync .{name}", f"name {name}", "sync segments")),
    ]


def test_parquet_files_are_divided_by_row_groups(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [text for name in "ac" for text in (corpus / name).read_text(encoding="utf-8").split("<|endoftext|>")]
    rows = make_folder(tmp_path / "rows")
    for name in ("a.parquet", "c.parquet"):
        parquet.write_table(pyarrow.table({"text": texts}), rows / name, row_group_size=10)
    (rows / "d.txt").write_bytes((corpus / "a").read_bytes())
    whole = counter(rows, None).count()
    size = (rows / "a.parquet").stat().st_size // 4
    run = tmp_path / "run"
    fail_after(3, counter(rows, run, segment_size=size), monkeypatch)
    recorder = ProgressRecorder()
    parts = counter(rows, run, segment_size=size + 100).count(recorder)
    assert parts.counts == whole.counts
    assert parts.documents == whole.documents
    assert parts.counting.segments is not None
    assert parts.counting.segments.segments >= 8
    assert parts.counting.segments.resumed == 3
    assert recorder.calls[-1] == (corpus_size(rows), corpus_size(rows))
