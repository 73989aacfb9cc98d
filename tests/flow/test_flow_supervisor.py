"""The crash matrix: every kind of failure, at every stage, reaches the caller soon and leaves no process behind.

After each test, a fixture in conftest checks that no worker and no thread is left.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection
from typing import Any

import flow_workers as w
import pytest
from flow_checks import leftover_workers, wait_until

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, WorkerDiedError, supervisor

SOON = 5.0  # "within a second or so", with room for a busy machine

OUTCOMES: dict[str, tuple[type[BaseException], str]] = {
    "raise": (ValueError, "the third item is bad"),
    "raise eof": (EOFError, "as if a file had ended"),
    "raise unloadable": (FlowError, "UnloadableError: unloadable error"),
    "raise unpicklable": (FlowError, "UnpicklableError: unpicklable error"),
    "exit 0": (WorkerDiedError, "exited with status 0 before finishing its work"),
    "exit 1": (WorkerDiedError, "exited with status 1"),
    "sys.exit 0": (WorkerDiedError, "exited with status 0 before finishing its work"),
    "sys.exit 3": (WorkerDiedError, "exited with status 3"),
    "segfault": (WorkerDiedError, "SIGSEGV"),
    "kill": (WorkerDiedError, "SIGKILL: most likely the kernel's out-of-memory killer"),
    "no memory": (WorkerDiedError, "ran out of memory: use fewer workers"),
    "unpicklable": (Exception, "pickle|local object"),
}


def pipeline_failing(place: str, how: str) -> Pipeline:
    """Build an endless source and two stages. The queues are small, so that all other workers are soon blocked."""
    source = partial(w.failing_source, how) if place == "source" else w.endless
    first = partial(w.fail, how) if place == "first" else w.pass_on
    last = partial(w.fail, how) if place == "last" else w.pass_on
    return w.simple_pipeline(source, first, last)


@contextmanager
def ends_soon() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("how", OUTCOMES)
@pytest.mark.parametrize("place", ["source", "first", "last"])
def test_a_failure_at_any_stage_reaches_the_caller(place: str, how: str) -> None:
    expected, text = OUTCOMES[how]
    with ends_soon(), pytest.raises(expected, match=text) as caught:
        for _ in pipeline_failing(place, how).run():
            pass
    assert not leftover_workers()
    if issubclass(caught.type, WorkerDiedError):
        stage = {"source": "source", "first": "stage 0", "last": "stage 1"}[place]
        workers = 1 if place == "source" else 2
        assert re.search(rf"stage '{stage}': worker \d of {workers} \(pid \d+\)", str(caught.value))


@pytest.mark.slow
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


def test_an_item_that_cannot_be_loaded_fails_in_its_reader() -> None:
    for functions in ([w.unloadable, w.pass_on], [w.unloadable]):
        with ends_soon(), pytest.raises(LookupError, match="cannot be loaded"):
            list(w.simple_pipeline(w.endless, *functions).run())


def test_a_failure_is_noticed_while_the_caller_waits_and_all_other_workers_are_blocked() -> None:
    pipeline = w.simple_pipeline(w.endless, w.pass_on, w.sleep_forever)
    run = pipeline.run()
    kill_when(pipeline, ("source", 0), lambda: pipeline.snapshot().queues["queue 1"].items == 4)
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"stage 'source'.*SIGKILL"):
        next(run)


def test_a_worker_killed_while_it_waits_in_get_ends_the_run() -> None:
    """It dies holding the lock of its queue, so the other workers of the stage can never get another item."""
    pipeline = w.simple_pipeline(w.one_then_wait, w.pass_on, w.pass_on)
    run = pipeline.run()
    assert next(run) == 0
    kill_when(pipeline, ("stage 1", 1), lambda: True)
    with ends_soon(), pytest.raises(WorkerDiedError, match="stage 'stage 1': worker 1 of 2"):
        next(run)


def kill_when(pipeline: Pipeline, worker: tuple[str, int], condition: Callable[[], bool]) -> None:
    """Start a thread that kills a worker once the condition holds."""

    def kill() -> None:
        assert wait_until(lambda: worker in pipeline.snapshot().pids and condition())
        os.kill(pipeline.snapshot().pids[worker], signal.SIGKILL)

    threading.Thread(target=kill).start()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_killed_while_writing_a_result_does_not_block_the_caller_in_recv(workers: int) -> None:
    pipeline = w.simple_pipeline(w.endless, w.kill_self_in_half_a_message, workers=workers)
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"stage 'stage 0'.*SIGKILL"):
        list(pipeline.run())


def test_an_exception_takes_precedence_over_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the supervisor until the source has died and the stage has raised, in either order."""

    def late_wait(*args: Any) -> Any:
        time.sleep(0.5)
        return connection.wait(*args)

    monkeypatch.setattr(supervisor, "wait", late_wait)
    pipeline = w.simple_pipeline(partial(w.failing_source, "exit 1"), w.raise_at_once)
    with pytest.raises(ValueError, match="third"):
        list(pipeline.run())


def test_a_stage_that_returns_early_is_an_error_instead_of_losing_data() -> None:
    with ends_soon(), pytest.raises(FlowError, match="'stage 0' returned before the end of its input"):
        list(w.simple_pipeline(w.endless, w.take_only_one).run())


def test_a_stage_may_take_exactly_its_inputs_without_reaching_their_end() -> None:
    assert list(w.simple_pipeline(partial(w.numbers, 1), w.take_only_one, workers=1).run()) == [0]


@pytest.mark.parametrize("stuck", [w.sleep_forever, w.spin_forever])
def test_closing_a_run_kills_workers_that_are_busy_or_asleep(stuck: Callable[..., Iterator[int]]) -> None:
    stages = [
        Stage("fine", w.pass_on, QueueSpec("in", route=w.identity), workers=1),
        Stage("half stuck", partial(one_item_then, stuck), QueueSpec("between", 2)),
    ]
    run = Pipeline(Source("source", w.endless), stages, QueueSpec("out", 2)).run()
    next(run)
    with ends_soon():
        run.close()


def one_item_then(stuck: Callable[..., Iterator[int]], items: Iterator[int]) -> Iterator[int]:
    yield next(items)
    yield from stuck(items)
