"""The end of a command: the error line and the exit status.

An installation without its dependencies: the remedy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from crash_run import Fault, wait_for

from bpeflow.cli.exit import end_on_signals, exit_status, with_flags
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


@pytest.mark.usefixtures("signals")
def test_what_a_signal_left_is_cleaned_up_before_the_process_exits() -> None:
    """Ctrl-C may come in the code of a `with` statement; then the end of the generator behind it cleans up."""
    cleaned_up = []

    def work() -> Iterator[None]:
        try:
            yield
        finally:
            cleaned_up.append(True)

    def interrupted() -> None:
        working = work()
        next(working)
        os.kill(os.getpid(), signal.SIGINT)

    try:
        interrupted()
    except KeyboardInterrupt as error:
        assert exit_status(error) == 130
    assert cleaned_up


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

    monkeypatch.setattr("bpeflow.cli.train.run_train", panic)
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


def test_a_signal_to_an_interpreter_that_ends_changes_nothing() -> None:
    """A finalizer runs at the very end, where an interruption would be printed as an ignored exception."""
    script = """
import os, runpy, signal, sys, weakref
import bpeflow.cli.exit
class Thing: pass
thing = Thing()
weakref.finalize(thing, lambda: [os.kill(os.getpid(), number) for number in (signal.SIGTERM, signal.SIGINT)])
sys.argv = ["bpeflow", "backends"]
runpy.run_module("bpeflow", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_exit_functions_are_called_and_objects_are_not_freed() -> None:
    """The interpreter's shutdown frees them one by one, which takes long."""
    script = """
import atexit
from bpeflow.cli.exit import leave
class Thing:
    def __del__(self):
        print("freed")
thing = Thing()
atexit.register(print, "called")
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "called\n", "")


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "bpeflow: interrupted\n"), (signal.SIGTERM, 143, "bpeflow: ended by SIGTERM\n")],
)
def test_a_signal_ends_everything_at_once(tmp_path: Path, number: signal.Signals, status: int, said: str) -> None:
    """Sent to the whole process group, as Ctrl-C in a terminal is."""
    corpus, done = tmp_path / "corpus.txt", tmp_path / "done"
    corpus.write_text("the same few words again and again\n", encoding="utf-8")
    command = [sys.executable, "-m", "bpeflow", "--input", str(corpus), "--vocab_size", "300", "--quiet"]
    command += ["--out_dir", str(tmp_path / "run"), "-c", "2", "--executor", "processes"]
    environment = os.environ | Fault("bpeflow.counting.counter:ChunkCounter._count", "wait").environment(done)
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as process:
        wait_for(done, process)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2, "the fork server and a counter"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        started = time.monotonic()
        _, err = process.communicate(timeout=20)
    assert time.monotonic() - started < 10
    assert (process.returncode, err) == (status, said)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["unfinished", "settings.json"]


def test_a_command_that_misses_a_library_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(ModuleNotFoundError("No module named 'pydantic'", name="pydantic")) == 1
    problem = f"dependencies are not installed for {sys.executable} (No module named 'pydantic'): pip install bpeflow"
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("use bad_records='skip' to leave out", "use --bad_records skip to leave out"),
        ("(or backend='auto')", "(or --backend auto)"),
        ("x; max_token_length=128 leaves", "x; --max_token_length 128 leaves"),
        ("use another out_dir, or overwrite=True", "use another out_dir, or --overwrite"),
        ("give special_tokens=['<s>', 'e']; x", "give --special_tokens '<s>' e; x"),
        ("(thin_rare={'below': 5, 'keep': 0.1} keeps", "(--thin_rare below=5,keep=0.1 keeps"),
        ("give any_tokenizer=True, or known='gpt2'.", "give --any_tokenizer, or --known gpt2."),
        # Text of the user's, and other words:
        ("(PYTHONFAULTHANDLER=1 in the environment)", "(PYTHONFAULTHANDLER=1 in the environment)"),
        ("runs/resume=True/x vocab_size=16000.txt a=[a-z]", "runs/resume=True/x vocab_size=16000.txt a=[a-z]"),
        ("as in special_tokens['x']", "as in special_tokens['x']"),
    ],
)
def test_messages_advise_flags(message: str, shown: str) -> None:
    assert with_flags(message) == shown
