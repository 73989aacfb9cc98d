"""What a worker process does at its end."""

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
from bpeflow.flow.worker import PARENT_GONE_STATUS, Job, work


def nothing() -> Iterator[Any]:
    return iter(())


def failure() -> Iterator[Any]:
    raise ValueError("that nobody hears of")


def exit_status_of_worker(function: Any, reports: Connection, *temporary: str) -> int | None:
    post: Any = SimpleNamespace(
        stage="counter",
        worker=0,
        job=pickle.dumps(Job(function, None, None)),
        inlet=None,
        outlet=SimpleNamespace(flush=lambda _: None, abandon=lambda: None),
        meter=SimpleNamespace(turn_to=lambda _: None, dismissed=False, items_in=0, items_out=0, weight_done=0),
        reports=reports,
        temporary=temporary,
    )
    process = multiprocessing.get_context("fork").Process(target=work, args=(post,))
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("function", [nothing, failure])
def test_one_that_has_nobody_to_report_to_cleans_up_and_ends_without_a_word(
    function: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The main process was killed, which it learns from its report before its parent watch does."""
    (tmp_path / "scratch").mkdir()
    ours, theirs = Pipe(duplex=False)
    ours.close()
    assert exit_status_of_worker(function, theirs, str(tmp_path / "scratch")) == PARENT_GONE_STATUS
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "scratch").exists()


def test_one_that_gets_no_thread_reports_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    ours, theirs = Pipe(duplex=False)
    assert exit_status_of_worker(nothing, theirs) == 1
    report = ours.recv()
    assert isinstance(report, Failure) and "can't start new thread" in str(report.to_exception())
    assert capfd.readouterr().err == ""


def test_a_thread_that_dies_before_it_lives_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for want of memory: CPython's gh-140746."""

    def die(_: threading.Thread) -> None:
        raise SystemExit  # which the interpreter says nothing about

    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(threading.Thread, "_bootstrap", die)
    monkeypatch.setattr("bpeflow.flow.thread_starts._PATIENCE", 0.1)
    thread_starts.bound_thread_starts()
    with pytest.raises(RuntimeError, match="can't start new thread: it had no memory"):
        threading.Thread().start()


def test_threads_that_live_start_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    thread_starts.bound_thread_starts()
    bounded = threading.Thread.start
    thread_starts.bound_thread_starts()
    assert threading.Thread.start is bounded, "twice is once"
    ran: list[int] = []
    thread = threading.Thread(target=ran.append, args=(1,))
    thread.start()
    thread.join()
    assert ran == [1]
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        thread.start()


@pytest.mark.parametrize(
    ("status", "began", "words"),
    [
        (1, False, "it did not come as far as its own code"),
        (255, False, "the fork server was killed"),
        (1, True, "left with exit status 1"),
    ],
)
def test_the_death_of_one_that_never_began_is_told_with_what_may_have_caused_it(
    status: int, began: bool, words: str
) -> None:
    message = str(worker_died("merger", 1, 2, 7, status, began))
    assert words in message and ("main script" in message) is (words.startswith("it did not come"))
