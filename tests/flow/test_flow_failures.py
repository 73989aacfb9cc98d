"""Error messages name the stage, the signal and the likely cause; the exception of a worker arrives, whatever it is."""

import errno
import os

import flow_workers as w
import pytest

from bpeflow.flow import FlowError
from bpeflow.flow.errors import cannot_start, worker_died
from bpeflow.flow.processes import pack_failure, unpack_failure


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exited with status 0 before finishing its work: os._exit or sys.exit in"),
        (3, "exited with status 3: os._exit or sys.exit in .*; see the output above"),
        (-9, "was killed by SIGKILL: most likely the kernel's out-of-memory killer: use fewer workers"),
        (-11, "was killed by SIGSEGV: a crash in native code: PYTHONFAULTHANDLER=1"),
        (-12, "was killed by SIGUSR2$"),
        (-63, "was killed by signal 63$"),
    ],
)
def test_the_error_for_a_dead_worker_names_the_likely_cause(status: int, text: str) -> None:
    with pytest.raises(Exception, match=rf"^stage 'merger': worker 1 of 2 \(pid 7\) {text}"):
        raise worker_died("merger", 1, 2, 7, status)


def test_the_error_for_a_limit_names_it() -> None:
    assert str(cannot_start(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))).startswith(
        "cannot start the worker processes (Too many open files): processes (ulimit -u), open files (ulimit -n)"
    )


def sent(error: Exception, size: int | None = None) -> BaseException | None:
    try:
        raise error
    except Exception as caught:
        return unpack_failure(pack_failure("counter", 1, caught)[:size])


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


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_part_of_an_exception_does_not_count(size: int) -> None:
    assert sent(KeyError("missing"), size) is None
