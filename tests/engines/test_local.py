"""The process engine: what every engine must do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bpeflow.config import EngineSettings
from bpeflow.engines.engine import Call, Handle, TaskReport
from bpeflow.engines.local import ProcessEngine
from bpeflow.errors import BpeflowError, EngineError, TaskLostError


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(EngineSettings(kind="processes", workers=2))
    yield engine
    engine.stop()


def outcomes(engine: ProcessEngine, *calls: Call) -> list[TaskReport | BpeflowError]:
    handles = [engine.submit(call, 1, 0) for call in calls]
    ended: set[Handle] = set()
    while left := [handle for handle in handles if handle not in ended]:
        ended |= {*engine.wait(left, 30)}
    return [result(engine, handle) for handle in handles]


def result(engine: ProcessEngine, handle: Handle) -> TaskReport | BpeflowError:
    try:
        return engine.result(handle)
    except TaskLostError as error:
        return error


def test_tasks_run_in_other_processes(engine: ProcessEngine) -> None:
    reports = outcomes(engine, *(Call("pid", os.getpid) for _ in range(6)))
    processes = {report.value for report in reports if isinstance(report, TaskReport)}
    assert 1 <= len(processes) <= engine.slots == 2
    assert os.getpid() not in processes
    assert all(isinstance(report, TaskReport) and report.process == report.value for report in reports)


def test_errors_are_values(engine: ProcessEngine) -> None:
    broken, unpicklable = outcomes(
        engine, Call("open", Path.read_text, (Path("/no/file"),)), Call("lock", threading.Lock)
    )
    assert isinstance(broken, EngineError)
    assert "open: /no/file: No such file" in str(broken)
    assert isinstance(unpicklable, EngineError)
    assert "lock: its result cannot be sent" in str(unpicklable)


def test_a_process_that_dies_loses_its_task_only(engine: ProcessEngine) -> None:
    died, ended, answered = outcomes(
        engine, Call("die", signal.raise_signal, (9,)), Call("end", os._exit, (3,)), Call("pid", os.getpid)
    )
    assert isinstance(died, TaskLostError)
    assert "was killed by SIGKILL (out of memory?)" in str(died)
    assert isinstance(ended, TaskLostError)
    assert "ended with status 3" in str(ended)
    assert isinstance(answered, TaskReport)


def test_a_wait_ends_after_its_timeout(engine: ProcessEngine) -> None:
    slow = engine.submit(Call("sleep", time.sleep, (1.0,)), 1, 0)
    assert engine.wait([slow], 0.01) == []
    assert engine.wait([slow], 30) == [slow]
    assert isinstance(engine.result(slow), TaskReport)


def test_an_idle_process_that_was_killed_is_replaced(engine: ProcessEngine) -> None:
    (report,) = outcomes(engine, Call("pid", os.getpid))
    assert isinstance(report, TaskReport)
    process = psutil.Process(report.process)
    process.kill()
    psutil.wait_procs([process], timeout=20)
    first, second = outcomes(engine, Call("pid", os.getpid), Call("pid", os.getpid))
    assert isinstance(second, TaskReport)
    assert isinstance(first, TaskReport | TaskLostError)


def test_stop_ends_tasks_that_run() -> None:
    engine = ProcessEngine(EngineSettings(kind="processes", workers=1))
    (report,) = outcomes(engine, Call("pid", os.getpid))
    assert isinstance(report, TaskReport)
    process = psutil.Process(report.process)
    engine.submit(Call("sleep", time.sleep, (60,)), 1, 0)
    started = time.monotonic()
    engine.stop()
    engine.stop()
    assert not process.is_running()
    assert time.monotonic() - started < 5


_PARENT = """
import os, sys, time
from bpeflow.config import EngineSettings
from bpeflow.engines.engine import Call
from bpeflow.engines.local import ProcessEngine
if __name__ == "__main__":
    engine = ProcessEngine(EngineSettings(kind="processes", workers=1))
    engine.wait([engine.submit(Call("pid", os.getpid), 1, 0)], 30)
    engine.submit(Call("sleep", time.sleep, (60,)), 1, 0)
    print(engine._workers[0].process.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert psutil.wait_procs([worker], timeout=20)[1] == []
