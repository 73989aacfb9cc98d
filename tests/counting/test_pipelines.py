"""The counting pipeline: the same counts for any number of processes and any sizes of chunks and queues."""

from __future__ import annotations

import gc
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from crash_run import Fault

import bpeflow
from bpeflow.config import CountSettings, make_settings
from bpeflow.corpus.documents import DocumentStatistics
from bpeflow.counting import count as count_module
from bpeflow.counting import pipelines
from bpeflow.counting.count import CorpusCounter
from bpeflow.errors import ConfigError, CorpusError, InvalidUtf8Error, PatternError, WorkerDiedError
from bpeflow.flow import Monitor, MonitorSample
from bpeflow.pretokenize.native import Scanner
from bpeflow.pretokenize.regex import load_pretokenizer

WORDS = ["low", "lower", "newest", "widest", "naïve", "日本語", "it's", "42", "...", "\n\n", "\t"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write two files of random documents, about 200 kB in all."""
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    for name in ("a.txt", "b.txt"):
        documents = [" ".join(choose.choices(WORDS, k=choose.randrange(200))) for _ in range(79)]
        documents.append("a last document that is not empty")
        (tmp_path / name).write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return tmp_path


def expected_counts(folder: Path, pattern: str = "gpt2") -> Counter[bytes]:
    """Count by the definition: the matches of the regex in each document."""
    pretokenizer = load_pretokenizer(pattern)
    counts: Counter[bytes] = Counter()
    for path in folder.iterdir():
        for document in path.read_text(encoding="utf-8").split("<|endoftext|>"):
            counts.update(token.encode() for token in pretokenizer.pretokens(document))
    return counts


def count(folder: Path, **options: object) -> bpeflow.PretokenCounts:
    return bpeflow.count(folder, special_tokens=["<|endoftext|>"], **{"executor": "processes", **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scanner", "options"),
    [
        ("regex", {"executor": "threads"}),
        ("native", {"executor": "threads", "num_counter": 3, "num_merger": 2, "chunk_size": 5000}),
        ("native", {"num_counter": 1}),
        ("regex", {"num_counter": 2, "num_merger": 2, "chunk_size": 1000}),
        ("native", {"num_counter": 2, "num_merger": 2, "chunk_size": 1000}),
        (
            "native",
            {"num_counter": 3, "num_merger": 3, "chunk_size": 9000},
        ),
        ("regex", {"num_counter": 2, "num_merger": 5, "chunk_size": 33_333}),
        ("native", {"num_counter": 2, "num_merger": 2, "chunk_size": 7_777}),
    ],
    ids=str,
    indirect=["scanner"],
)
def test_counts_do_not_depend_on_how_the_work_is_divided(
    corpus: Path, options: dict[str, object], scanner: Scanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if options.get("num_merger") == 3:
        monkeypatch.setattr(pipelines, "QUEUE_ITEMS", 1)
        monkeypatch.setattr(pipelines, "QUEUE_BYTES", 1)
    assert dict(count(corpus, **options)) == expected_counts(corpus)


def test_statistics_have_documents_and_workers(corpus: Path) -> None:
    settings = make_settings(
        CountSettings,
        {"input": str(corpus), "executor": "processes", "num_counter": 2, "num_merger": 2, "chunk_size": 5000},
    )
    counted = CorpusCounter(settings).count()
    assert counted.documents == DocumentStatistics(160, 0, sum(p.stat().st_size for p in corpus.iterdir()))
    assert counted.corpus.files == 2
    stages = counted.counting.stages
    workers = {"chunk reader": 1, "counter": 2, "merger": 2, "reducer": 1}
    assert {name: stage.workers for name, stage in stages.items()} == workers
    assert [*stages] == [*workers]
    assert stages["counter"].bytes == counted.documents.bytes


def test_the_observer_gets_progress_and_the_monitor_gets_queues(corpus: Path) -> None:
    progress: list[tuple[int, int]] = []
    samples: list[MonitorSample] = []

    class ProgressRecorder:
        def counting(self, counted_bytes: int, total_bytes: int) -> None:
            progress.append((counted_bytes, total_bytes))

    settings = make_settings(CountSettings, {"input": str(corpus), "num_counter": 2})
    counted = CorpusCounter(settings).count(ProgressRecorder(), samples.append, sample_interval=0.05)
    total = counted.documents.bytes
    assert progress[0] == (0, total)
    assert progress[-1] == (total, total)
    assert counted.counting.in_process, "watching a run does not change how it runs"
    assert list(samples[-1].queues) == ["chunk_queue", "counter_queue", "merged_queue"]
    assert "chunk_queue: 0, counter_queue: 0, merged_queue: 0" in samples[-1].line()


def test_special_tokens_are_removed_longest_first(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one<|end|><|x|>two<|end|>three", encoding="utf-8")
    counts = bpeflow.count(tmp_path, special_tokens=["<|end|>", "<|end|><|x|>"])
    assert dict(counts) == {b"one": 1, b"two": 1, b"three": 1}


@pytest.mark.threads
def test_small_input_is_counted_in_as_many_threads_as_there_are_chunks(corpus: Path, scanner: Scanner) -> None:
    values = {"input": str(corpus), "num_counter": 3}
    whole = CorpusCounter(make_settings(CountSettings, values)).count()
    pieces = CorpusCounter(make_settings(CountSettings, {**values, "chunk_size": 5000})).count()
    assert whole.counting.in_process and pieces.counting.in_process
    assert (whole.counting.threads, pieces.counting.threads) == (1, 3 if scanner == "native" else 1)
    assert pieces.counts == whole.counts
    assert pieces.documents == whole.documents


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "in_threads"),
    [
        ({}, "native"),
        ({"segment_size": 25_000, "memory_limit": "16mb", "pattern": r"\S+|\s+"}, "native"),
        ({"normalizer": "nfc"}, None),
        ({"input_format": "jsonl"}, None),
        ({"executor": "processes"}, None),
    ],
)
def test_large_input_is_counted_in_threads_where_native_code_does_all_the_work(
    corpus: Path, scanner: Scanner, options: dict[str, Any], in_threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_module, "SMALL_INPUT", 10_000)
    if options.get("input_format") == "jsonl":
        for path in corpus.iterdir():
            path.write_text("".join(json.dumps({"text": line}) + "\n" for line in [path.read_text("utf-8")] * 2))
    counter = CorpusCounter(
        make_settings(CountSettings, {"input": str(corpus), **options}), corpus.parent / f"{corpus.name}-segments"
    )
    counted = counter.count()
    assert counted.counting.in_process is (scanner == in_threads)
    if "input_format" not in options:
        assert dict(counted.counts) == expected_counts(corpus, options.get("pattern", "gpt2"))


@pytest.mark.threads
def test_a_failure_in_one_thread_ends_the_others(tmp_path: Path) -> None:
    """The caller gets this failure, wherever in the text it is."""
    for bad in (0, 500, 999):
        lines = [b"some words\n"] * 1000
        lines[bad] = b"\xff\n"
        (tmp_path / "text").write_bytes(b"".join(lines))
        with pytest.raises(InvalidUtf8Error, match=f"byte {11 * bad} "):
            bpeflow.count(tmp_path, num_counter=3, chunk_size=50)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("counter")]


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_invalid_utf8_is_an_error_with_file_and_offset(tmp_path: Path, executor: str) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good \xff bad")
    with pytest.raises(InvalidUtf8Error, match=r"bad\.txt is not UTF-8 at byte 5"):
        bpeflow.count(tmp_path, executor=executor)


def test_invalid_utf8_can_be_replaced_or_skipped(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"ok||a\xff||ok")
    options = {"separator": "||"}
    assert dict(bpeflow.count(tmp_path, invalid_utf8="replace", **options)) == {b"ok": 2, b"a": 1, "\ufffd".encode(): 1}
    assert dict(bpeflow.count(tmp_path, invalid_utf8="skip", **options)) == {b"ok": 2}


def test_a_custom_pattern_counts_its_matches(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ab, cd ab", encoding="utf-8")
    counts = bpeflow.count(tmp_path, pattern=r"\p{L}+|,", unmatched="drop")
    assert dict(counts) == {b"ab": 2, b"cd": 1, b",": 1}


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        (b"", {}, "the corpus is empty"),
        (b"abc", {"sources": [{"paths": "corpus", "max_bytes": 2}]}, "no document is as small as max_bytes"),
        (b"|||", {"special_tokens": ["|"]}, "there is nothing but separators and special tokens"),
        (b"\xff|\xff", {"separator": "|", "invalid_utf8": "skip"}, "all documents were skipped"),
        (b'{"text": null}\n', {"input_format": "jsonl", "bad_records": "skip"}, "all documents were skipped"),
        (b"abc", {"pattern": "[0-9]+", "unmatched": "drop"}, r"the pattern '\[0-9\]\+' matches nothing in the corpus"),
    ],
)
def test_nothing_to_count_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, options: dict[str, Any], reason: str
) -> None:
    (tmp_path / "corpus").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=f"nothing to count: {reason}"):
        bpeflow.count([] if "sources" in options else "corpus", **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"paths": "no/such/file"}, CorpusError),
        ({"pattern": "gtp2"}, PatternError),
        ({"pattern": "("}, PatternError),
        ({"num_counters": 2}, ConfigError),
        ({"chunk_size": "8 elephants"}, ConfigError),
        ({"special_tokens": ["a", "a"]}, ConfigError),
        ({"special_tokens": [""]}, ConfigError),
        ({"memory_limit": "15mb"}, ConfigError),
        ({"scratch_dir": "no/such/folder"}, ConfigError),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(corpus: Path, options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        bpeflow.count(**{"paths": corpus, **options})


def test_a_killed_counter_ends_the_run(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a counter is killed at work, an error names it within seconds, and no process is left."""
    before = set(psutil.Process().children(recursive=True))
    killed = tmp_path.with_name(f"{tmp_path.name}-killed")
    fault = Fault("bpeflow.counting.counter:ChunkCounter._count", "kill", 2)
    for name, value in fault.environment(killed).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WorkerDiedError, match=r"counter.*SIGKILL"):
        count(corpus, num_counter=2, chunk_size=1000)
    assert time.monotonic() - float(killed.read_text(encoding="ascii").split()[0]) < 10
    assert set(psutil.Process().children(recursive=True)) <= before


def test_ctrl_c_before_the_monitor_stops_leaves_no_thread(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the help of garbage collection, which may not run for hours."""

    def interrupted(monitor: Monitor, *exception: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Monitor, "__exit__", interrupted)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            count(corpus, executor="threads")
        del caught
        deadline = time.monotonic() + 10
        while any(thread.name == "flow monitor" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        gc.enable()
