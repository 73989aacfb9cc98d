"""Every kind of failure, at every stage, reaches the caller soon and leaves no process behind.

After each test, a fixture in conftest checks that no worker and no thread is left.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flow_workers as w
import psutil
import pytest
from flow_checks import ends_soon, leftover_workers, pids, servers, wait_until

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, WorkerDiedError
from bpeflow.flow.processes import ProcessRun

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
    "unpicklable": (Exception, "pickle|local object"),
}


def pipeline_failing(place: str, how: str, **options: Any) -> Pipeline:
    """Build an endless source and two stages. The queues are small, so that all other workers are soon blocked."""
    source = partial(w.failing_source, how) if place == "source" else w.endless
    first = partial(w.fail, how) if place == "first" else w.pass_on
    last = partial(w.fail, how) if place == "last" else w.pass_on
    return w.simple_pipeline(source, first, last, **options)


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


def test_an_exception_carries_the_traceback_of_the_worker_as_its_cause() -> None:
    with pytest.raises(ValueError, match="third") as caught:
        list(pipeline_failing("first", "raise").run())
    assert "in _raise" in str(caught.value.__cause__)
    assert caught.value.__traceback__ is not None


def test_a_large_exception_arrives_although_all_workers_raise_at_once() -> None:
    """It does not fit into the pipe. One of them reports, the others wait until they are killed."""
    with ends_soon(), pytest.raises(ValueError, match="x") as caught:
        list(w.simple_pipeline(w.endless, w.raise_large, workers=3).run())
    assert caught.value.args == ("x" * 3_000_000,)


@pytest.fixture
def late_handling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the main process handle the first exit when all processes have ended."""
    handle_exit = ProcessRun._handle_exit

    def handle_late(run: ProcessRun) -> None:
        monkeypatch.undo()
        assert wait_until(lambda: run._server is not None and run._server.poll() is not None)
        handle_exit(run)

    monkeypatch.setattr(ProcessRun, "_handle_exit", handle_late)


@pytest.mark.usefixtures("late_handling")
def test_an_exception_takes_precedence_over_a_death() -> None:
    """The main process looks when the source has died and the stage has raised, in either order."""
    with pytest.raises(ValueError, match="third"):
        list(w.simple_pipeline(partial(w.failing_source, "exit 1"), w.raise_at_once, workers=1).run())


@pytest.mark.usefixtures("late_handling")
def test_a_death_is_named_although_all_others_have_ended_by_then() -> None:
    with pytest.raises(WorkerDiedError, match="exited with status 0 before finishing its work"):
        list(w.simple_pipeline(partial(w.failing_source, "exit 0"), w.pass_on).run())


def has_exited(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def kill_when(pipeline: Pipeline, worker: tuple[str, int], condition: Callable[[], bool]) -> None:
    """Start a thread that kills a worker once the condition holds."""

    def kill() -> None:
        assert wait_until(lambda: worker in pids(pipeline) and condition())
        os.kill(pids(pipeline)[worker], signal.SIGKILL)

    threading.Thread(target=kill).start()


def test_a_failure_is_noticed_while_the_caller_waits_and_all_other_workers_are_blocked() -> None:
    pipeline = w.simple_pipeline(w.endless, w.pass_on, w.sleep_forever)
    run = pipeline.run()
    kill_when(pipeline, ("source", 0), lambda: pipeline.snapshot().queues["queue 1"].items == 4)
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"stage 'source'.*SIGKILL"):
        next(run)


@pytest.mark.parametrize("worker", [0, 1])
def test_a_worker_killed_while_it_waits_in_get_ends_the_run(worker: int) -> None:
    """One of the two holds the lock of their queue, so the other can never get another item."""
    pipeline = w.simple_pipeline(w.one_then_wait, w.pass_on, w.pass_on)
    run = pipeline.run()
    assert next(run) == 0
    kill_when(pipeline, ("stage 1", worker), lambda: True)
    with ends_soon(), pytest.raises(WorkerDiedError, match=f"stage 'stage 1': worker {worker} of 2"):
        next(run)


@pytest.mark.parametrize("after", [[], [w.pass_on]], ids=["to the caller", "to a stage"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_killed_while_writing_an_item_does_not_block_its_reader(workers: int, after: list[Any]) -> None:
    pipeline = w.simple_pipeline(w.endless, w.kill_self_in_half_a_message, *after, workers=workers)
    with ends_soon(), pytest.raises(WorkerDiedError, match=r"stage 'stage 0'.*SIGKILL"):
        list(pipeline.run())


def test_an_item_lost_in_spite_of_all_that_is_detected() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 20), w.lose_first_item, workers=1)
    with pytest.raises(FlowError, match="queue 'results': 1 items were lost between processes"):
        list(pipeline.run())


@pytest.mark.parametrize("stuck", [w.sleep_forever, w.spin_forever, w.hold_the_interpreter])
def test_closing_a_run_kills_workers_that_are_busy_or_asleep(stuck: Callable[..., Iterator[int]]) -> None:
    stages = [
        Stage("fine", w.pass_on, QueueSpec("in", route=w.identity), workers=1),
        Stage("half stuck", partial(w.one_then, stuck), QueueSpec("between", 2)),
    ]
    run = Pipeline(Source("source", w.endless), stages, QueueSpec("out", 2)).run()
    next(run)
    with ends_soon():
        run.close()


def test_results_may_wait_until_all_workers_and_the_server_have_ended() -> None:
    run = w.simple_pipeline(partial(w.numbers, 30), w.pass_on, max_items=100).run()
    next(run)
    assert wait_until(lambda: all(has_exited(server.pid) for server in servers()))
    assert len(list(run)) == 29


def test_a_process_that_a_stage_leaves_running_does_not_keep_the_run_from_ending() -> None:
    with ends_soon():
        assert sorted(w.simple_pipeline(partial(w.numbers, 9), w.leave_a_process).run()) == list(range(9))


def test_a_finished_pipeline_holds_no_pipe() -> None:
    """A caller may keep many, for their reports."""

    def kept(how: str) -> Pipeline:
        pipeline = pipeline_failing("first", how)
        with pytest.raises(Exception, match=OUTCOMES[how][1]):
            list(pipeline.run())
        return pipeline

    kept("raise")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    pipelines = [kept("raise"), kept("kill")]
    assert len(os.listdir("/proc/self/fd")) - before <= 2 * len(pipelines), "two for the meters of each"  # noqa: PTH208
