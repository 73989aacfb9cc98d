"""Pipelines that run in the calling process."""

from functools import partial

import flow_workers as w
import pytest

from bpeflow.flow import FlowError, Pipeline, QueueSpec, Source, Stage


def test_inline_and_processes_give_the_same_results() -> None:
    build = partial(w.simple_pipeline, partial(w.numbers, 50), w.square, w.total)
    assert sum(build().run(inline=True)) == sum(build().run()) == sum(number * number for number in range(50))


def test_inline_runs_in_this_process_and_needs_no_picklable_functions() -> None:
    seen = []

    def record(items):  # type: ignore[no-untyped-def]
        for item in items:
            seen.append(item)
            yield item

    stage = Stage("stage", record, QueueSpec("in"), workers=7)
    assert list(Pipeline(Source("source", lambda: range(3)), [stage]).run(inline=True)) == [0, 1, 2]
    assert seen == [0, 1, 2]


def test_an_exception_reaches_the_caller_unchanged() -> None:
    with pytest.raises(ValueError, match="third item") as caught:
        list(w.simple_pipeline(w.endless, partial(w.fail, "raise")).run(inline=True))
    assert caught.value.__cause__ is None


def test_an_unpicklable_item_fails_inline_as_it_does_in_processes() -> None:
    with pytest.raises(Exception, match=r"pickle|local object"):
        list(w.simple_pipeline(w.endless, partial(w.fail, "unpicklable")).run(inline=True))


def test_a_stage_that_returns_early_is_an_error() -> None:
    with pytest.raises(FlowError, match="returned before the end"):
        list(w.simple_pipeline(partial(w.numbers, 5), w.take_only_one).run(inline=True))


def test_snapshot_and_reports_work_inline() -> None:
    stage = Stage("stage", w.pass_on, QueueSpec("in"), weigh=w.weigh_ten)
    pipeline = Pipeline(Source("source", partial(w.numbers, 4)), [stage])
    run = pipeline.run(inline=True)
    next(run)
    next(run)
    snapshot = pipeline.snapshot()
    assert snapshot.stages["stage"].items_in == 2
    assert snapshot.stages["stage"].weight_done == 10, "the second item is not finished yet"
    assert snapshot.stages["stage"].workers_alive == 1
    assert len(list(run)) == 2
    assert pipeline.snapshot().stages["stage"].weight_done == 40
    assert pipeline.snapshot().pids == {}
    assert [(report.stage, report.items_in, report.items_out) for report in pipeline.reports] == [
        ("source", 0, 4),
        ("stage", 4, 4),
    ]
