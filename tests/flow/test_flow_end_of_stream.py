"""Why the supervisor sends `Stop`, and not the last worker: "End of stream" in flow/supervisor.py."""

import multiprocessing
import multiprocessing.queues
import time
from functools import partial
from typing import Any

import flow_workers as w
import pytest

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage, WorkerDiedError

STOP = "stop"


class SlowToPickle:
    """An item that keeps the feeder thread busy, as large data would."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.5)
        return (str, ("data",))


def put_data(queue: Any, data_is_put: Any) -> None:
    queue.put(SlowToPickle())
    data_is_put.set()


def put_stop_after_the_data(queue: Any, data_is_put: Any) -> None:
    data_is_put.wait()
    queue.put(STOP)


def test_in_a_plain_queue_the_stop_of_one_worker_overtakes_the_data_of_another() -> None:
    context = multiprocessing.get_context("forkserver")
    queue, data_is_put = context.Queue(), context.Event()
    workers = [
        context.Process(target=target, args=(queue, data_is_put)) for target in (put_data, put_stop_after_the_data)
    ]
    for worker in workers:
        worker.start()
    arrived = [queue.get(), queue.get()]
    for worker in workers:
        worker.join()
    queue.close()
    assert arrived == [STOP, "data"], "the data was put first but arrives last: a consumer would already have stopped"


def test_a_pipeline_delivers_all_items_when_one_feeder_is_far_behind() -> None:
    """Worker 0 of the stage has a slow feeder thread; worker 1 finishes at once."""
    stage = Stage("mixed", slow_if_even, QueueSpec("in", 100, route=w.identity), workers=2)
    for _ in range(3):
        pipeline = Pipeline(Source("source", partial(w.numbers, 20)), [stage], QueueSpec("out", 100))
        assert sorted(pipeline.run()) == list(range(20))


def slow_if_even(items: Any) -> Any:
    for item in items:
        yield from w.slow_feeder([item]) if item == 0 else [item]


def test_large_results_still_in_the_pipe_are_not_lost_when_their_workers_have_finished() -> None:
    """No result fits into the pipe and the caller is slow, so the workers can exit only as fast as it reads."""
    sizes = [3_000_000, 10, 2_000_000, 20, 1_000_000]
    pipeline = w.simple_pipeline(partial(w.blobs, sizes), w.pass_on, max_items=10)
    arrived = []
    for blob in pipeline.run():
        time.sleep(0.05)
        arrived.append(len(blob))
    assert sorted(arrived) == sorted(sizes)


@pytest.mark.parametrize("place", ["source", "stage"])
@pytest.mark.parametrize(
    ("function", "message"),
    [(w.run_out_of_memory_when_sending, "ran out of memory"), (w.fail_when_sending, "exited with status 1")],
)
def test_an_item_that_cannot_be_sent_ends_the_run(start_method: str, place: str, function: Any, message: str) -> None:
    """multiprocessing's own feeder thread would silently drop it, and the counts would be too low."""
    source = partial(function, range(20)) if place == "source" else partial(w.numbers, 20)
    functions = [function] if place == "stage" else []
    pipeline = w.simple_pipeline(source, *functions, w.pass_on, workers=1, start_method=start_method)
    with pytest.raises(WorkerDiedError, match=message):
        list(pipeline.run())


def test_the_main_process_retries_sending_stop_when_it_was_out_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickler: Any = multiprocessing.queues._ForkingPickler  # type: ignore[attr-defined]
    dumps, failures = pickler.dumps, []

    def fail_twice(obj: Any, *arguments: Any) -> Any:
        if type(obj).__name__ == "Stop" and len(failures) < 2:
            failures.append(obj)
            raise MemoryError
        return dumps(obj, *arguments)

    pipeline = w.simple_pipeline(partial(w.numbers, 20), w.pass_on)
    monkeypatch.setattr(pickler, "dumps", fail_twice)
    assert sorted(pipeline.run()) == list(range(20))
    assert len(failures) == 2


def test_an_item_lost_in_spite_of_all_that_is_detected() -> None:
    pipeline = w.simple_pipeline(partial(w.numbers, 20), w.lose_first_item, workers=1)
    with pytest.raises(FlowError, match="queue 'results': 1 items were lost between processes"):
        list(pipeline.run())
