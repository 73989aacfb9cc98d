"""Ctrl-C in threads at any moment: the run ends, the exception is Ctrl-C's, and no thread is left waiting."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import ref

import flow_workers as w
import pytest
from flow_checks import Script, leftover_threads, wait_until

import bpeflow.flow.pipeline
import bpeflow.flow.shared
import bpeflow.flow.stage
import bpeflow.flow.threads
from bpeflow.flow import Pipeline, QueueSpec, Source, Stage, map_in_threads
from bpeflow.flow.shared import anonymous_file, owned, pipe, start_threads, uninterrupted

#: The code that runs in the calling thread while others wait for it.
SHARED = {
    module.__file__
    for module in (
        bpeflow.flow.threads,
        bpeflow.flow.stage,
        bpeflow.flow.shared,
        bpeflow.flow.pipeline,
        threading,
    )
}


class Interrupt:
    """A trace function that raises Ctrl-C's exception before the line of `SHARED` with this number, from 1."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in SHARED:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def run_all() -> None:
    stages = [Stage("one", w.pass_on, QueueSpec("in", max_items=1), 2), Stage("two", w.pass_on, QueueSpec("on", 1))]
    assert sorted(Pipeline(Source("source", partial(w.numbers, 3)), stages).run("threads")) == [0, 1, 2]


def run_and_stop() -> None:
    run = w.simple_pipeline(w.endless, w.pass_on, workers=1).run("threads")
    next(run)
    run.close()


def run_map() -> None:
    assert list(map_in_threads(abs, [3, -1], 2)) == [3, 1]


def interrupted_at(step: int, action: Callable[[], None]) -> bool:
    """Run an action in a thread, which Ctrl-C interrupts at a step. Return whether there was such a step."""
    caught: list[type[BaseException]] = []

    def run() -> None:
        sys.settrace(interrupt)
        try:
            action()
        except BaseException as error:
            sys.settrace(None)
            caught.append(type(error))
        sys.settrace(None)

    interrupt = Interrupt(step)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), f"step {step}: it hangs"
    if interrupt.left <= 0:
        assert caught == [KeyboardInterrupt], f"step {step}: {caught}"
    else:
        assert not caught
    return interrupt.left <= 0


@pytest.mark.parametrize("action", [run_all, run_and_stop, run_map])
def test_ctrl_c_before_any_line_ends_a_run(action: Callable[[], None]) -> None:
    step = 1
    while interrupted_at(step, action):
        step += 1
    assert step > 300
    assert wait_until(lambda: not leftover_threads()), leftover_threads()


class InterruptAnywhere:
    """A trace function that raises Ctrl-C's exception before the instruction of the interpreter with this number."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is that of Linux")
@pytest.mark.parametrize("make", [pipe, anonymous_file, partial(owned, os.open, __file__, os.O_RDONLY)])
def test_ctrl_c_while_a_descriptor_is_made_leaves_none_open(make: Callable[[], object]) -> None:
    step = 0
    interrupted = True
    while interrupted:
        step += 1
        before = sorted(Path("/proc/self/fd").iterdir())
        interrupt = InterruptAnywhere(step)
        sys.settrace(interrupt)
        try:
            make()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert sorted(Path("/proc/self/fd").iterdir()) == before, step
        interrupted = interrupt.left <= 0
    assert step > 20


_INTERRUPTED = """
import faulthandler, random, signal, sys, threading, time
from bpeflow.flow import Monitor, Pipeline, QueueSpec, Source, Stage
from flow_workers import endless, pass_on
choose = random.Random(int(sys.argv[1]))
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(300):
    faulthandler.dump_traceback_later(20, exit=True)
    queue = QueueSpec("in", max_items=choose.choice([1, 64]), route=choose.choice([None, int]))
    stages = [Stage("one", pass_on, queue, choose.choice([1, 3])), Stage("two", pass_on, QueueSpec("on", max_items=1))]
    pipeline = Pipeline(Source("source", endless), stages)
    try:
        signal.setitimer(signal.ITIMER_REAL, choose.uniform(0.0002, 0.02))
        with Monitor(pipeline, 0.001, lambda sample: None, processes=False):
            for item in pipeline.run("threads"):
                pass
    except KeyboardInterrupt:
        pass
    while any(thread.name.startswith(("flow one", "flow two")) for thread in threading.enumerate()):
        time.sleep(0.001)
print("all ended")
"""


def test_ctrl_c_at_random_moments_ends_endless_runs(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    with Script(tmp_path, "-c", _INTERRUPTED, str(seed)) as script:
        output, errors = script.end()
    assert output == "all ended\n", errors


def test_a_thread_that_is_not_started_any_more_keeps_nothing_alive() -> None:
    """Ctrl-C may end a run while its threads are being started."""

    class First(threading.Thread):
        def start(self) -> None:
            super().start()
            threads.clear()

    class Run:
        def work(self) -> None: ...

    run = Run()
    alive = ref(run)
    threads = [First(target=abs, args=(1,)), threading.Thread(target=run.work)]
    start_threads(threads)
    del run
    assert alive() is None


def test_a_call_in_another_thread_has_ended_when_ctrl_c_is_raised() -> None:
    calls = []

    def call() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)  # the interpreter of the main thread has noticed the signal
        calls.append("ended")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(call)
    assert calls == ["ended"]
