"""Parts that do not fit together are rejected before anything starts, by an error that names them."""

from functools import partial

import flow_workers as w
import pytest

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage

SOURCE = Source("source", partial(w.numbers, 3))


def test_a_stage_needs_a_worker() -> None:
    with pytest.raises(FlowError, match="'counter': workers must be at least 1, not 0"):
        Stage("counter", w.pass_on, QueueSpec("in"), workers=0)


@pytest.mark.parametrize("bounds", [{"max_items": 0}, {"max_bytes": 0}])
def test_the_bounds_of_a_queue_are_at_least_1(bounds: dict[str, int]) -> None:
    with pytest.raises(FlowError, match="'in': max_items and max_bytes"):
        QueueSpec("in", **bounds)  # type: ignore[arg-type]


def test_names_are_distinct() -> None:
    with pytest.raises(FlowError, match="two stages have the same name: source"):
        Pipeline(SOURCE, [Stage("source", w.pass_on, QueueSpec("in"))])
    with pytest.raises(FlowError, match="two queues have the same name: in"):
        Pipeline(SOURCE, [Stage("stage", w.pass_on, QueueSpec("in"))], QueueSpec("in"))


def test_results_cannot_be_routed() -> None:
    with pytest.raises(FlowError, match="results cannot be routed"):
        Pipeline(SOURCE, [], QueueSpec("out", route=w.identity))


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (
            Pipeline(Source("source", lambda: [1]), []),
            "stage 'source' cannot be sent .*lambda.*define its functions in a module",
        ),
        (
            Pipeline(SOURCE, [Stage("stage", w.pass_on, QueueSpec("in"), weigh=lambda item: 1)]),
            "stage 'stage' cannot be sent .*lambda",
        ),
        (
            Pipeline(SOURCE, [Stage("stage", w.pass_on, QueueSpec("in", route=lambda item: 1))]),
            "stage 'source' cannot be sent .*lambda",
        ),
    ],
)
def test_the_error_names_a_function_that_cannot_be_pickled(pipeline: Pipeline, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        pipeline.run()


def test_the_error_for_an_unknown_executor_lists_the_known_ones() -> None:
    with pytest.raises(FlowError, match="'ray' is not one of processes, threads"):
        Pipeline(SOURCE, []).run("ray")  # type: ignore[arg-type]
