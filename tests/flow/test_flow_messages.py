"""The exception of a worker arrives whatever it is; the report measures its process."""

import flow_workers as w
import pytest

from bpeflow.flow import FlowError, peak_memory
from bpeflow.flow.messages import Failure


def sent(error: Exception) -> BaseException:
    try:
        raise error
    except Exception as caught:
        return Failure.from_exception("counter", 1, caught).to_exception()


def test_an_exception_arrives_with_its_traceback_as_the_cause() -> None:
    error = sent(KeyError("missing"))
    assert isinstance(error, KeyError) and error.args == ("missing",)
    assert str(error.__cause__).startswith("in stage 'counter', worker 1:\n")
    assert "in sent" in str(error.__cause__)


@pytest.mark.parametrize("error", [w.UnpicklableError("some text"), w.UnloadableError("some ", "text")])
def test_an_exception_that_cannot_travel_arrives_as_text(error: Exception) -> None:
    arrived = sent(error)
    assert isinstance(arrived, FlowError)
    assert f"'counter', worker 1, raised flow_workers.{type(error).__name__}: some text" in str(arrived)


def test_the_peak_memory_includes_what_was_freed() -> None:
    before = peak_memory()
    block = bytearray(b"x") * (before + (10 << 20))
    del block
    assert peak_memory() >= before + (10 << 20)
