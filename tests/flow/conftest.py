"""What the flow tests share: worker functions that child processes can import; a check that nothing is left over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

# pytest puts this folder on sys.path, and multiprocessing hands that on to workers: so flow_workers is found there.
from flow_checks import START_METHODS, comes_true, leftover_threads, leftover_workers

HERE = Path(__file__).parent


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
