"""The end of a command: the error line and the exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bpeflow.cli.exit import end_on_signals, exit_status
from bpeflow.cli.main import main
from bpeflow.errors import ScratchError


@pytest.fixture
def signals() -> Iterator[None]:
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    end_on_signals()
    yield
    end_on_signals()  # which forgets earlier interruptions
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_an_error_that_a_signal_became_is_that_signal(capsys: pytest.CaptureFixture[str]) -> None:
    """numpy, interrupted while it is imported, says that its installation is broken."""
    try:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise ImportError("importing the C-extensions failed") from error
    except ImportError as error:
        status = exit_status(error)
    assert (status, capsys.readouterr().err) == (143, "bpeflow: ended by SIGTERM\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_in_a_callback_of_pythons_ends_the_run(number: signal.Signals) -> None:
    """Python ignores exceptions in callbacks of weak references; here in two of them, one after the other."""
    script = f"""
import os, signal, sys, time, weakref
from bpeflow.cli import train
signal.signal({number.value}, signal.SIG_DFL)  # another test may have left it ignored
class Thing: pass
def interrupted(_):
    os.kill(os.getpid(), {number.value})
    print("not reached")
def interrupted_again(_):
    time.sleep(0.3)
    print("not reached")
def command(_):
    things = Thing(), Thing()
    references = weakref.ref(things[0], interrupted), weakref.ref(things[1], interrupted_again)
    for thing in range(2):
        things = things[1:]
    time.sleep(5)
    print("not reached")
train.run = command
sys.argv = ["bpeflow", "--config", "none"]
from bpeflow.__main__ import run
run()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    words = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", f"bpeflow: {words}\n")


@pytest.mark.usefixtures("signals")
def test_other_exceptions_that_python_ignores_are_shown_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    class Thing:
        def __del__(self) -> None:
            raise ValueError("shown")

    hook = sys.unraisablehook
    sys.unraisablehook = sys.__unraisablehook__
    try:
        end_on_signals()
        end_on_signals()
        Thing()
    finally:
        sys.unraisablehook = hook
    assert capsys.readouterr().err.count("ValueError: shown") == 1


@pytest.mark.usefixtures("signals")
def test_an_incomplete_installation_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(ImportError("No module named numpy")) == 1
    assert "the installation is incomplete" in capsys.readouterr().err


@pytest.mark.usefixtures("signals")
def test_a_panic_that_a_signal_became_is_that_signal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydantic, interrupted while it is imported, raises a BaseException that is not an Exception."""

    class PanicException(BaseException):
        pass

    def panic(*_: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise PanicException from error
        return 0

    monkeypatch.setattr("bpeflow.cli.train.run", panic)
    assert main(["--config", "none"]) == 130
    assert capsys.readouterr().err == "bpeflow: interrupted\n"


def test_errors_that_cause_each_other_are_no_endless_loop() -> None:
    failure, reason = ScratchError("cannot write"), OSError(28, "No space left on device")
    try:
        try:
            raise failure from reason
        except ScratchError:
            raise reason from None
    except OSError as error:
        assert error.__context__ is not None and error.__context__.__cause__ is error
        assert exit_status(error) == 1


@pytest.mark.parametrize(("error", "status"), [("MemoryError()", 1), ("RuntimeError()", -signal.SIGABRT)])
def test_without_memory_the_interpreters_shutdown_is_skipped(error: str, status: int) -> None:
    """Some libraries crash in their own shutdown without memory, which would change the exit status."""
    script = f"""
import atexit, os
from bpeflow.cli import exit as endings
class Crash:
    def __del__(self):
        os.abort()
crash = Crash()
atexit.register(print, "what was registered is done")
endings.leave(endings.exit_status({error}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout == "what was registered is done\n" * (status == 1) or status != 1
    assert done.stderr.splitlines()[-1].startswith("bpeflow: ")


def test_a_signal_to_an_interpreter_that_ends_changes_nothing() -> None:
    """A finalizer runs at the very end, where an interruption would be printed as an ignored exception."""
    script = """
import os, runpy, signal, sys, weakref
class Thing: pass
thing = Thing()
weakref.finalize(thing, lambda: [os.kill(os.getpid(), number) for number in (signal.SIGTERM, signal.SIGINT)])
sys.argv = ["bpeflow", "backends"]
runpy.run_module("bpeflow", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
