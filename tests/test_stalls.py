"""A run that makes no progress logs a warning that names the stage."""

import io
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import bpeflow
import bpeflow.counting.pipeline
import bpeflow.dataset.corpus_encoder
from bpeflow.flow import Monitor, Pipeline, stall_watch
from bpeflow.progress import Observer, plain

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report stalls after one second instead of a minute."""

    def short_stall_watch(pipeline: Pipeline) -> Monitor:
        return stall_watch(pipeline, patience=1.0)

    monkeypatch.setattr(bpeflow.counting.pipeline, "stall_watch", short_stall_watch)
    monkeypatch.setattr(bpeflow.dataset.corpus_encoder, "stall_watch", short_stall_watch)


class EncodingRecorder(Observer):
    def __init__(self) -> None:
        self.reports: list[tuple[int, int | None]] = []

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.reports.append((encoded_bytes, total_bytes))


def slow_documents() -> Iterator[str]:
    yield "a document"
    time.sleep(2.0)
    yield "another document"


def test_an_iterable_that_yields_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    bpeflow.count(slow_documents())
    assert re.search(r"no progress for 1 s: chunk reader working \(pid \d+", caplog.text)
    assert "progress again" in caplog.text


def test_a_run_that_makes_progress_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def documents() -> Iterator[str]:
        for _ in range(12):
            time.sleep(0.15)
            yield "a document " * 100_000  # a chunk

    bpeflow.count(documents(), chunk_size=1_000_000)
    assert not caplog.text


def test_a_stopped_counter_is_reported_with_its_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stopped process simulates one blocked on a dead network folder, which is harder to set up."""
    (tmp_path / "text").write_text("some words of text\n" * 300_000, encoding="utf-8")
    stopped: list[psutil.Process] = []

    def stop_and_continue() -> None:
        while not stopped:  # process ids in order: chunk reader, counter, merger
            children = psutil.Process().children()
            servers = [child for child in children if "forkserver.serve" in " ".join(child.cmdline())]
            workers = sorted(servers[0].children(), key=lambda worker: worker.pid) if servers else []
            if len(workers) == 3:
                stopped.append(workers[1])
        for _ in range(10):  # it may be stopped before it has begun to work, and is not known then
            stopped[0].send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 2
            while ", stopped)" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.05)
            stopped[0].send_signal(signal.SIGCONT)
            if ", stopped)" in caplog.text:
                break
            time.sleep(0.1)

    thread = threading.Thread(target=stop_and_continue)
    thread.start()
    counts = bpeflow.count(tmp_path, small_input=0, num_counter=1, num_merger=1, chunk_size="20kb")
    thread.join()
    assert dict(counts)[b" words"] == 300_000
    assert re.search(rf"no progress for 1 s: .*counter 0 \w+ \(pid {stopped[0].pid}, stopped\)", caplog.text)


def test_encoding_also_reports_a_stall(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = bpeflow.Tokenizer.train(iter(["some text"]), 260)
    read, write = os.pipe()

    def feed() -> None:
        with os.fdopen(write, "w") as pipe:
            time.sleep(2.0)
            pipe.write("some text")

    thread = threading.Thread(target=feed)
    thread.start()
    with os.fdopen(read) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        progress = EncodingRecorder()
        tokenizer.encode_file("-", tmp_path / "ids", observer=progress)
    thread.join()
    assert "no progress for 1 s: chunk reader working " in caplog.text
    assert progress.reports == [(9, None)], "the size of standard input is unknown"


def test_progress_without_a_known_total_shows_no_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PLAIN_INTERVAL", 0.0)
    screen = io.StringIO()
    observer = plain.PlainObserver(screen)
    observer.counting(0, None)
    observer.counting(3_000_000, None)
    lines = [line.partition(",")[0] for line in screen.getvalue().splitlines()]  # without the rate
    assert lines == ["counting: 0 bytes", "counting: 3.0 MB"]
