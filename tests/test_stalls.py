"""A run that makes no progress logs a warning that names the stage."""

import io
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_run import Fault

import bpeflow
import bpeflow.counting.pipelines
import bpeflow.dataset.corpus_encoder
from bpeflow.flow import Monitor, Pipeline, stall_watch
from bpeflow.progress import Observer
from bpeflow.progress import observer as progress

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report stalls after one second instead of a minute."""

    def short_stall_watch(pipeline: Pipeline) -> Monitor:
        return stall_watch(pipeline, patience=1.0)

    monkeypatch.setattr(bpeflow.counting.pipelines, "stall_watch", short_stall_watch)
    monkeypatch.setattr(bpeflow.dataset.corpus_encoder, "stall_watch", short_stall_watch)


class EncodingRecorder(Observer):
    def __init__(self) -> None:
        self.reports: list[tuple[int, int | None]] = []

    def encoding(self, encoded_bytes: int, total_bytes: int | None) -> None:
        self.reports.append((encoded_bytes, total_bytes))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_iterable_that_yields_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def documents() -> Iterator[str]:
        yield "a document"
        wait_until(lambda: "no progress" in caplog.text)
        yield "another document"

    bpeflow.count(documents())
    assert re.search(r"no progress for \d s: chunk reader working \(pid \d+", caplog.text)
    assert "progress again" in caplog.text


def test_a_run_that_makes_progress_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def documents() -> Iterator[str]:
        for _ in range(30):
            time.sleep(0.05)
            yield "a document " * 1000  # a chunk

    bpeflow.count(documents(), chunk_size=10_000)
    assert not caplog.text


def test_a_stopped_counter_is_reported_with_its_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process stands in for one blocked on a dead network folder, which is harder to set up."""
    (tmp_path / "text").write_text("some words of text\n" * 30_000, encoding="utf-8")
    stopped = tmp_path.with_name(f"{tmp_path.name}-stopped")
    fault = Fault("bpeflow.counting.counter:ChunkCounter._count", "stop", 2)
    for name, value in fault.environment(stopped).items():
        monkeypatch.setenv(name, value)

    def continue_when_reported() -> None:
        try:
            wait_until(lambda: ", stopped)" in caplog.text)
        finally:
            os.kill(pid_of(stopped), signal.SIGCONT)

    thread = threading.Thread(target=continue_when_reported)
    thread.start()
    counts = bpeflow.count(tmp_path, executor="processes", num_counter=1, num_merger=1, chunk_size="20kb")
    thread.join()
    assert dict(counts)[b" words"] == 30_000
    assert re.search(rf"no progress for \d s: .*counter 0 \w+ \(pid {pid_of(stopped)}, stopped\)", caplog.text)


def pid_of(done: Path) -> int:
    return int(done.read_text(encoding="ascii").split()[1])


def test_encoding_also_reports_a_stall(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = bpeflow.Tokenizer.train(iter(["some text"]), 260)
    read, write = os.pipe()

    def feed() -> None:
        with os.fdopen(write, "w") as pipe:
            wait_until(lambda: "no progress" in caplog.text)
            pipe.write("some text")

    thread = threading.Thread(target=feed)
    thread.start()
    with os.fdopen(read) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        progress = EncodingRecorder()
        tokenizer.encode_file("-", tmp_path / "ids", observer=progress)
    thread.join()
    assert re.search(r"no progress for \d s: chunk reader working ", caplog.text)
    assert progress.reports == [(9, None)], "the size of standard input is unknown"


def test_progress_without_a_known_total_shows_no_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL", 0.0)
    screen = io.StringIO()
    observer = progress.PlainObserver(screen)
    observer.counting(0, None)
    observer.counting(3_000_000, None)
    lines = [line.partition(",")[0] for line in screen.getvalue().splitlines()]  # without the rate
    assert lines == ["counting: 0 bytes", "counting: 3.0 MB"]
