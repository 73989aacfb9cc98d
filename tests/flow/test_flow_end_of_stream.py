"""Why the supervisor, not the last worker, says that nothing follows: "End of stream" in flow/supervisor.py."""

import multiprocessing
import time
from functools import partial
from typing import Any

import flow_workers as w

from bpeflow.flow import Pipeline, QueueSpec, Source, Stage

STOP = "stop"


class SlowToPickle:
    """Keeps the feeder thread busy, as large data would."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.5)
        return (str, ("data",))


def put_data(queue: Any, has_put: Any) -> None:
    queue.put(SlowToPickle())
    has_put.set()


def put_stop_when_the_other_has_put(queue: Any, has_put: Any) -> None:
    has_put.wait()
    queue.put(STOP)


def test_with_a_plain_queue_the_stop_of_one_worker_overtakes_the_data_of_another() -> None:
    context = multiprocessing.get_context("forkserver")
    queue, has_put = context.Queue(), context.Event()
    workers = [
        context.Process(target=target, args=(queue, has_put)) for target in (put_data, put_stop_when_the_other_has_put)
    ]
    for worker in workers:
        worker.start()
    arrived = [queue.get(), queue.get()]
    for worker in workers:
        worker.join()
    queue.close()
    assert arrived == [STOP, "data"], "put first, yet comes last: a consumer would have left before it"


def test_a_pipeline_delivers_everything_when_one_feeder_is_far_behind() -> None:
    """Worker 0 of the stage has a slow feeder thread, worker 1 is done at once."""
    stage = Stage("mixed", slow_if_even, QueueSpec("in", 100, route=w.identity), workers=2)
    for _ in range(3):
        pipeline = Pipeline(Source("source", partial(w.numbers, 20)), [stage], QueueSpec("out", 100))
        assert sorted(pipeline.run()) == list(range(20))


def slow_if_even(items: Any) -> Any:
    for item in items:
        yield from w.slow_feeder([item]) if item == 0 else [item]


def test_large_results_still_in_the_pipe_are_not_lost_when_their_workers_are_done() -> None:
    """No single result fits the pipe, and the caller is slow: the workers can exit only as it reads."""
    sizes = [3_000_000, 10, 2_000_000, 20, 1_000_000]
    pipeline = w.simple_pipeline(partial(w.blobs, sizes), w.pass_on, max_items=10)
    arrived = []
    for blob in pipeline.run():
        time.sleep(0.05)
        arrived.append(len(blob))
    assert sorted(arrived) == sorted(sizes)
