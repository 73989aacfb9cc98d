"""The crash matrix of signals to a training: Ctrl-C once and repeatedly, SIGTERM, SIGKILL of the main process."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from crash_run import Fault, Run, Train, contents, finished_files, tokenizer, unfinished_files
from places import MAIN, WORKERS, Place

SIGNALS = {
    "Ctrl-C": ([signal.SIGINT], 130, "bpeflow: interrupted"),
    "Ctrl-C again and again": ([signal.SIGINT] * 4, 130, "bpeflow: interrupted"),
    "SIGTERM": ([signal.SIGTERM], 143, "bpeflow: ended by SIGTERM"),
}
PLACES = {**WORKERS, **MAIN}


def wait_at(train: Train, place: Place) -> Run:
    """Start a training that has reached a place and waits there."""
    run = train(Fault(place.where, "wait", place.call), place.corpus, segment_size=place.segment_size)
    run.wait_for_fault()
    return run


def resume(train: Train, place: Place) -> Run:
    run = train(None, place.corpus, "--resume", segment_size=place.segment_size).end()
    assert run.status == 0, run.err
    run.assert_clean()
    return run


#: Workers get no signal of the terminal, so the stage matters in the main process. The first of several Ctrl-C does
#: what a single one does, and SIGTERM has another status and message.
CELLS = [(stage, "Ctrl-C again and again") for stage in (*MAIN, "stream reader", "segment reader")]
CELLS += [("counter", "Ctrl-C"), ("learning", "Ctrl-C"), ("counter", "SIGTERM"), ("learning", "SIGTERM")]


@pytest.mark.parametrize(("stage", "kind"), CELLS)
def test_a_signal_ends_a_run_at_any_stage(train: Train, stage: str, kind: str, out: Path, earlier: Path) -> None:
    numbers, status, said = SIGNALS[kind]
    run = wait_at(train, PLACES[stage])
    run.signal(*numbers, pause=0.02 if len(numbers) > 1 else 0)
    run.end()
    assert (run.status, run.err.splitlines()[-1]) == (status, said), run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert finished_files(out) == contents(earlier)
    assert unfinished_files(out) == ({"counts.npz", "run.json"} if PLACES[stage].counted else set())


def test_a_terminal_that_is_closed_ends_a_run(train: Train, out: Path, earlier: Path) -> None:
    run = wait_at(train, PLACES["counter"])
    run.signal(signal.SIGHUP)
    run.end()
    assert (run.status, run.err.splitlines()[-1]) == (128 + signal.SIGHUP, "bpeflow: ended by SIGHUP"), run.err
    assert "Traceback" not in run.err
    run.assert_clean()
    assert finished_files(out) == contents(earlier)


@pytest.mark.parametrize("stage", ["chunk reader", "counter", "segment reader"])
def test_workers_follow_a_killed_main_process_and_clean_up(
    train: Train, stage: str, out: Path, earlier: Path, expected: dict[str, bytes]
) -> None:
    run = wait_at(train, WORKERS[stage])
    run.kill()
    run.end()
    assert run.status == -signal.SIGKILL
    run.assert_clean()
    left = finished_files(out)
    assert left.pop(".lock")
    assert left == contents(earlier)
    if stage != "chunk reader":
        resume(train, WORKERS[stage])
        assert tokenizer(out) == expected


@pytest.mark.parametrize("stage", ["segment", "writing counts", "learning", "writing"])
def test_a_killed_main_process_leaves_a_run_to_resume(
    train: Train, stage: str, out: Path, expected: dict[str, bytes]
) -> None:
    shutil.rmtree(out)
    run = wait_at(train, MAIN[stage])
    run.kill()
    run.end()
    assert run.status == -signal.SIGKILL
    run.assert_clean()
    resume(train, MAIN[stage])
    assert tokenizer(out) == expected
    assert {path.name for path in out.iterdir()} == {*expected, "run.json"}


def test_ctrl_c_twice_at_any_moment_leaves_nothing(train: Train, out: Path, expected: dict[str, bytes]) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    shutil.rmtree(out)
    for _ in range(4):
        run = train(None, "text", "--resume", segment_size="300kb")
        while not (out / ".lock").exists() and run.process.poll() is None:  # before that, Python itself handles signals
            time.sleep(0.01)
        time.sleep(choose.uniform(0, 0.8))
        run.signal(signal.SIGINT, choose.choice([signal.SIGINT, signal.SIGTERM]), pause=choose.uniform(0, 0.05))
        run.end()
        assert run.status in (0, 130, 143), run.err
        assert "Traceback" not in run.err
        run.assert_clean()
        assert not out.exists() or not list(out.rglob(".*"))
    resume(train, MAIN["segment"])
    assert tokenizer(out) == expected
