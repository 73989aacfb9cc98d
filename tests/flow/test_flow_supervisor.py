"""The crash matrix: every way to fail, at every stage, reaches the caller soon and leaves no process behind.

Each test ends with the check of conftest that no worker and no thread is left.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import flow_workers as w
import pytest
from conftest import comes_true, leftover_workers

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, WorkerDied

SOON = 5.0  # "within a second or so", with room for a busy machine

OUTCOMES: dict[str, tuple[type[BaseException], str]] = {
    "raise": (ValueError, "the third item is bad"),
    "raise eof": (EOFError, "as if a file had ended"),
    "raise odd": (FlowError, "OddError: odderror"),
    "raise locked": (FlowError, "LockedError: locked error"),
    "exit 0": (WorkerDied, "exit status 0 before its work was done"),
    "exit 1": (WorkerDied, "exit status 1"),
    "sys.exit 0": (WorkerDied, "exit status 0 before its work was done"),
    "sys.exit 3": (WorkerDied, "exit status 3"),
    "segfault": (WorkerDied, "SIGSEGV"),
    "kill": (WorkerDied, "SIGKILL: most likely the kernel's out-of-memory killer"),
    "unpicklable": (Exception, "pickle"),
}


def pipeline_failing(place: str, how: str) -> Pipeline:
    """Three stations with an endless source; the queues are small, so that all the others are soon blocked."""
    source = partial(w.failing_source, how) if place == "source" else w.endless
    first = partial(w.fail, how) if place == "first" else w.pass_on
    last = partial(w.fail, how) if place == "last" else w.pass_on
    return w.simple_pipeline(source, first, last)


@contextmanager
def ends_soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("how", OUTCOMES)
@pytest.mark.parametrize("place", ["source", "first", "last"])
def test_a_failure_at_any_stage_reaches_the_caller(place: str, how: str) -> None:
    expected, text = OUTCOMES[how]
    with ends_soon(), pytest.raises(expected, match=text) as caught:
        for _ in pipeline_failing(place, how).run():
            pass
    assert not leftover_workers()
    if issubclass(caught.type, WorkerDied):
        stage = {"source": "source", "first": "stage 0", "last": "stage 1"}[place]
        workers = 1 if place == "source" else 2
        assert re.search(rf"stage '{stage}': worker \d of {workers} \(pid \d+\)", str(caught.value))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_failures_are_noticed_with_every_start_method(start_method: str, how: str) -> None:
    expected, text = OUTCOMES[how]
    pipeline = w.simple_pipeline(w.endless, partial(w.fail, how), w.pass_on, start_method=start_method)
    with pytest.raises(expected, match=text):
        list(pipeline.run())


def test_an_exception_carries_the_traceback_of_the_worker_as_its_cause() -> None:
    with pytest.raises(ValueError, match="third") as caught:
        list(pipeline_failing("first", "raise").run())
    assert "in _raise" in str(caught.value.__cause__)
    assert caught.value.__traceback__ is not None


def test_an_item_that_cannot_be_loaded_fails_where_it_is_loaded() -> None:
    for functions in ([w.unloadable, w.pass_on], [w.unloadable]):
        with ends_soon(), pytest.raises(LookupError, match="cannot be loaded"):
            list(w.simple_pipeline(w.endless, *functions).run())


def test_a_failure_is_noticed_while_the_caller_waits_and_all_others_are_blocked() -> None:
    pipeline = w.simple_pipeline(w.endless, w.pass_on, w.wait_for_ever)
    run = pipeline.run()
    comes_true_then_kill(pipeline, lambda: pipeline.snapshot().queues["queue 1"].items == 4)
    with ends_soon(), pytest.raises(WorkerDied, match="stage 'source'.*SIGKILL"):
        next(run)


def comes_true_then_kill(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    """Kill the source from another thread, once the condition holds."""
    import threading

    def kill() -> None:
        assert comes_true(lambda: bool(pipeline.snapshot().pids) and condition())
        os.kill(pipeline.snapshot().pids["source", 0], signal.SIGKILL)

    threading.Thread(target=kill).start()


def test_a_worker_killed_while_it_waits_in_get_ends_the_run() -> None:
    """It dies with the lock of its queue held: the other worker of the stage can never get another item."""
    pipeline = w.simple_pipeline(partial(w.numbers, 3), w.pass_on, w.pass_on)
    run = pipeline.run()
    next(run)
    os.kill(pipeline.snapshot().pids["stage 1", 1], signal.SIGKILL) if ("stage 1", 1) in pipeline.snapshot().pids else 0
    with ends_soon(), pytest.raises(WorkerDied, match="SIGKILL"):
        for _ in run:
            pass
        raise WorkerDied("finished before the kill: SIGKILL")  # a fast machine may be through already


@pytest.mark.parametrize("fellows", [1, 3])
def test_a_worker_killed_in_the_middle_of_writing_a_result_does_not_leave_the_caller_in_recv(fellows: int) -> None:
    pipeline = w.simple_pipeline(w.endless, w.kill_self_in_half_a_message, workers=fellows)
    with ends_soon(), pytest.raises(WorkerDied, match="stage 'stage 0'.*SIGKILL"):
        list(pipeline.run())


def test_an_exception_takes_precedence_over_deaths() -> None:
    """Every worker fails at its third item, one stage by raising and the other by dying: both at about one time."""
    stages = [Stage("raises", partial(w.fail, "raise"), QueueSpec("in", 3))]
    with pytest.raises((ValueError, WorkerDied)):
        list(Pipeline(Source("dies", partial(w.failing_source, "exit 1")), stages).run())


def test_a_stage_that_returns_early_is_an_error_not_a_loss_of_data() -> None:
    with ends_soon(), pytest.raises(FlowError, match="'stage 0' returned before the end of its input"):
        list(w.simple_pipeline(w.endless, w.take_one_only).run())


def test_a_stage_that_takes_exactly_its_inputs_and_no_more_is_fine() -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 1), w.take_one_only, workers=1).run()) == [0]


@pytest.mark.parametrize("stuck", [w.wait_for_ever, w.spin_for_ever])
def test_closing_a_run_kills_workers_that_are_busy_or_asleep(stuck: Callable[..., Iterator[int]]) -> None:
    stages = [
        Stage("fine", w.pass_on, QueueSpec("in", route=w.identity), workers=1),
        Stage("half stuck", partial(half, stuck), QueueSpec("between", 2)),
    ]
    run = Pipeline(Source("source", w.endless), stages, QueueSpec("out", 2)).run()
    next(run)
    with ends_soon():
        run.close()  # type: ignore[attr-defined]


def half(stuck: Callable[..., Iterator[int]], items: Iterator[int]) -> Iterator[int]:
    yield next(items)
    yield from stuck(items)
