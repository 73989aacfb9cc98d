"""The end of a worker process."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bpeflow.flow import thread_starts
from bpeflow.flow.diagnostics import worker_died
from bpeflow.flow.messages import Failure
from bpeflow.flow.worker import PARENT_GONE_STATUS, Job, run_worker


def nothing() -> Iterator[Any]:
    return iter(())


def failure() -> Iterator[Any]:
    raise ValueError("never reported")


def exit_status_of_worker(function: Any, reports: Connection, *temporary: str) -> int | None:
    context: Any = SimpleNamespace(
        stage="counter",
        worker=0,
        job=pickle.dumps(Job(function, None, None)),
        input_channel=None,
        output_channel=SimpleNamespace(flush=lambda _: None, discard_unsent=lambda: None),
        meter=SimpleNamespace(
            set_activity=lambda _: None, cleanup_disabled=False, items_in=0, items_out=0, weight_done=0
        ),
        reports=reports,
        temporary=temporary,
    )
    process = multiprocessing.get_context("fork").Process(target=run_worker, args=(context,))
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("function", [nothing, failure])
def test_a_worker_whose_parent_died_cleans_up_and_exits_silently(
    function: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here it notices the killed main process when it reports, before its parent watch does."""
    (tmp_path / "scratch").mkdir()
    reader, writer = Pipe(duplex=False)
    reader.close()
    assert exit_status_of_worker(function, writer, str(tmp_path / "scratch")) == PARENT_GONE_STATUS
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "scratch").exists()


def test_a_worker_that_cannot_start_a_thread_reports_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    reader, writer = Pipe(duplex=False)
    assert exit_status_of_worker(nothing, writer) == 1
    report = reader.recv()
    assert isinstance(report, Failure) and "can't start new thread" in str(report.to_exception())
    assert capfd.readouterr().err == ""


def test_starting_a_thread_that_dies_before_it_runs_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when memory runs out: CPython's gh-140746."""

    def die(_: threading.Thread) -> None:
        raise SystemExit  # the interpreter prints nothing about it

    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(threading.Thread, "_bootstrap", die)
    monkeypatch.setattr("bpeflow.flow.thread_starts._TIMEOUT", 0.1)
    thread_starts.bound_thread_starts()
    with pytest.raises(RuntimeError, match="can't start new thread: not enough memory"):
        threading.Thread().start()


def test_other_threads_start_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    thread_starts.bound_thread_starts()
    bounded = threading.Thread.start
    thread_starts.bound_thread_starts()
    assert threading.Thread.start is bounded, "idempotent"
    ran: list[int] = []
    thread = threading.Thread(target=ran.append, args=(1,))
    thread.start()
    thread.join()
    assert ran == [1]
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        thread.start()


@pytest.mark.parametrize(
    ("status", "started", "text"),
    [
        (1, False, "it failed before it reached its own code"),
        (255, False, "the fork server was killed"),
        (1, True, "exited with status 1"),
    ],
)
def test_the_error_for_a_worker_that_never_started_names_likely_causes(status: int, started: bool, text: str) -> None:
    message = str(worker_died("merger", 1, 2, 7, status, started))
    assert text in message and ("main script" in message) is text.startswith("it failed before")
