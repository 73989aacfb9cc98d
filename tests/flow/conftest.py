"""What the flow tests share: worker functions that child processes can import; a check that nothing is left over."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))  # for flow_workers; multiprocessing hands the path on to workers

START_METHODS = ["forkserver", "spawn", "fork"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A hang must fail, and soon."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(params=START_METHODS)
def start_method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def no_process_or_thread_is_left() -> Iterator[None]:
    yield
    assert comes_true(lambda: not leftover_workers()), leftover_workers()
    assert comes_true(lambda: not leftover_threads()), leftover_threads()


def leftover_workers() -> list[str]:
    """Child processes, apart from the two helpers of multiprocessing, which serve all runs."""
    left = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            # A forked worker shows the command line of the fork server: tell them apart by the parent.
            helper = "forkserver" in command or "resource_tracker" in command
            if process.status() != psutil.STATUS_ZOMBIE and not (helper and process.ppid() == psutil.Process().pid):
                left.append(f"{process.pid} {command}")
    return left


def leftover_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("flow", "QueueFeeder"))]


def comes_true(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
