"""Pipelines in threads: the source in the calling thread, exceptions unchanged, no thread left."""

import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import flow_workers as w
import pytest
from flow_checks import ends_soon, leftover_threads, wait_until

from bpeflow.flow import Pipeline, QueueSpec, Source, Stage, wait_readable


def test_the_source_runs_in_the_calling_thread_and_functions_need_not_be_picklable() -> None:
    seen = []

    def source() -> Iterator[int]:
        for number in range(3):
            seen.append(threading.current_thread())
            yield number

    def stage(items: Iterator[int]) -> Iterator[int]:
        assert threading.current_thread().name.startswith("flow stage ")
        yield from items

    pipeline = Pipeline(Source("source", source), [Stage("stage", stage, QueueSpec("in"), workers=7)])
    assert sorted(pipeline.run("threads")) == [0, 1, 2]
    assert seen == [threading.current_thread()] * 3


def test_stages_run_at_the_same_time() -> None:
    barrier = threading.Barrier(4, timeout=20)

    def meet(items: Iterator[int]) -> Iterator[int]:
        barrier.wait()
        yield from items

    assert len(list(w.simple_pipeline(partial(w.numbers, 9), meet, meet, workers=2).run("threads"))) == 9


@pytest.mark.parametrize("place", ["source", "first", "last"])
def test_an_exception_reaches_the_caller_unchanged(place: str) -> None:
    error = ValueError("mine")

    def fail(items: Any = range(1000)) -> Iterator[int]:
        for number, item in enumerate(items):
            if number == 2:
                raise error
            yield item

    functions = [fail if place == "first" else w.pass_on, fail if place == "last" else w.pass_on]
    with ends_soon(), pytest.raises(ValueError, match="mine") as caught:
        list(w.simple_pipeline(fail if place == "source" else w.endless, *functions).run("threads"))
    assert caught.value is error
    assert error.__cause__ is None
    assert not leftover_threads()


# ---- a source that waits


def read(descriptor: int) -> Iterator[bytes]:
    while True:
        wait_readable(descriptor)
        if not (block := os.read(descriptor, 100)):
            return
        yield block


@pytest.fixture
def idle_pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_source_reads_a_pipe_to_its_end() -> None:
    reader, writer = os.pipe()
    threading.Timer(0.1, lambda: (os.write(writer, b"late"), os.close(writer))).start()
    assert list(w.simple_pipeline(partial(read, reader), w.pass_on).run("threads")) == [b"late"]
    wait_readable(reader)  # outside of a run, and at the end of the pipe
    os.close(reader)


def test_a_source_may_wait_after_the_end_of_a_run_within_it() -> None:
    reader, writer = os.pipe()
    os.close(writer)

    def source() -> Iterator[int]:
        yield from w.simple_pipeline(partial(w.numbers, 3), w.pass_on, workers=1).run("threads")
        wait_readable(reader)

    assert list(w.simple_pipeline(source, w.pass_on, workers=1).run("threads")) == [0, 1, 2]
    os.close(reader)


@pytest.mark.parametrize("before", [True, False], ids=["before the wait", "during the wait"])
def test_a_failure_ends_the_wait_of_the_source_for_an_idle_pipe(before: bool, idle_pipe: tuple[int, int]) -> None:
    def source() -> Iterator[bytes]:
        yield b"first"
        if before:
            assert failed.wait(20)
            time.sleep(0.1)
        yield from read(idle_pipe[0])

    def fail(items: Iterator[bytes]) -> Iterator[bytes]:
        next(items)
        time.sleep(0 if before else 0.2)
        failed.set()
        raise KeyError("late")
        yield

    failed = threading.Event()
    with ends_soon(), pytest.raises(KeyError, match="late"):
        list(w.simple_pipeline(source, fail, workers=1).run("threads"))


def test_a_failure_ends_a_run_within_a_stage() -> None:
    """The inner run waits for an item of the outer one."""

    def within(items: Iterator[int]) -> Iterator[int]:
        yield from w.simple_pipeline(lambda: items, w.pass_on, workers=1).run("threads")

    def fail(items: Iterator[int]) -> Iterator[int]:
        next(items)
        raise KeyError("outer")
        yield

    run = w.simple_pipeline(partial(w.numbers, 1000), within, fail, workers=1).run("threads")
    with ends_soon(), pytest.raises(KeyError, match="outer"):
        list(run)
    assert wait_until(lambda: not leftover_threads())


def test_a_run_closed_by_garbage_collection_in_one_of_its_threads_ends() -> None:
    kept: list[Any] = []

    def drop(items: Iterator[int]) -> Iterator[int]:
        yield next(items)
        assert dropped.wait(20)
        kept.clear()
        yield from items

    dropped = threading.Event()
    kept.append(w.simple_pipeline(w.endless, drop, workers=1).run("threads"))
    next(kept[0])
    dropped.set()
    assert wait_until(lambda: not kept and not leftover_threads())


def test_a_run_that_has_ended_and_what_its_functions_refer_to_are_freed_at_once() -> None:
    class Large:
        pass

    large = Large()

    def refer(items: Iterator[int], large: Large = large) -> Iterator[int]:
        yield from items

    freed = weakref.ref(large)
    gc.disable()
    try:
        stage = Stage("stage", refer, QueueSpec("queue"), workers=2)
        assert len(list(Pipeline(Source("source", lambda: range(9)), [stage]).run("threads"))) == 9
        del large, refer, stage
        assert freed() is None
    finally:
        gc.enable()


def test_a_thread_that_cannot_start_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_two(thread: threading.Thread) -> None:
        if thread.name == "flow stage 0 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(w.simple_pipeline(partial(w.numbers, 9), w.pass_on, workers=3).run("threads"))
    assert not leftover_threads()
