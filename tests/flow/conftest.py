"""Shared by the flow tests: worker functions that child processes can import, and a check for leftovers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

# pytest puts this folder on sys.path, which workers get from the main process, so they find flow_workers.
from flow_checks import leftover_threads, leftover_workers, wait_until

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make a hanging test fail soon."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(autouse=True)
def no_leftover_process_or_thread() -> Iterator[None]:
    yield
    assert wait_until(lambda: not leftover_workers()), leftover_workers()
    assert wait_until(lambda: not leftover_threads()), leftover_threads()
