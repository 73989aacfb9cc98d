"""How the command line ends: signals, exit statuses and last words."""

from __future__ import annotations

import atexit
import errno
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from bpeflow._util.memory import explain, is_memory_error
from bpeflow._util.text import one_line
from bpeflow.errors import (
    BackendUnavailableError,
    BpeflowError,
    ConfigError,
    CorpusError,
    FlowError,
    FormatError,
    OutOfMemoryError,
)
from bpeflow.flow.launch import ENDING_SIGNALS

#: Exit statuses: what the user gave is wrong; the run failed. Those of signals are 128 + the signal, as shells have it.
USAGE, FAILURE = 2, 1

#: What tells a second Ctrl-C that is meant from one that comes of impatience, or is sent once more by a program between
#: the terminal and us: so many seconds. Cleaning up takes less.
_SAME_INTERRUPT = 2.0

#: Seconds after which an interruption that Python had to ignore is raised once more: the callback that it came in is
#: long over then.
_ONCE_MORE = 0.1

_REMEDIES = {
    errno.ENOSPC: "make room on its disk, or write elsewhere",
    errno.EDQUOT: "your quota is used up: make room, or write elsewhere",
    errno.EFBIG: "a limit of file sizes (ulimit -f), or of the file system: raise it, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "change its mode, or name another one",
    errno.EPERM: "change its mode, or name another one",
    errno.EMFILE: "raise the limit (ulimit -n), or use fewer workers",
    errno.ENFILE: "the whole system has too many files open: close some",
    errno.EIO: "see whether the disk or the network works",
}


class SignalInterrupt(KeyboardInterrupt):
    """Ctrl-C, or a signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


#: Those that came since `end_on_signals`.
_interruptions: list[SignalInterrupt] = []

#: Whether a command has failed for lack of memory. Not the failure itself: it would keep alive what its frames hold.
_lacked_memory = threading.Event()


class _ReraiseIgnored:
    """What `sys.unraisablehook` becomes: an interruption that no one can catch is raised once more, a moment later.

    Python ignores what is raised in its callbacks, such as those of weak references; a Ctrl-C in one would be lost. A
    timer does it, and no thread: a callback may come while `threading` holds its locks.
    """

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._before = before

    def __call__(self, ignored: sys.UnraisableHookArgs) -> None:
        interruption = ignored.exc_value
        if not isinstance(interruption, SignalInterrupt):
            self._before(ignored)
            return

        def once_more(*_: object) -> None:
            raise interruption

        signal.signal(signal.SIGALRM, once_more)
        signal.setitimer(signal.ITIMER_REAL, _ONCE_MORE)


def end_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end the run by an exception: processes are joined, temporary files removed.

    More of them in the next moment do not disturb that. A signal that is ignored, as under nohup, stays so.
    """
    since = -_SAME_INTERRUPT
    _interruptions.clear()

    def interrupt(number: int, frame: object) -> None:
        nonlocal since
        if time.monotonic() - since > _SAME_INTERRUPT:
            since = time.monotonic()
            _interruptions.append(SignalInterrupt(number))
            raise _interruptions[-1]

    if threading.current_thread() is threading.main_thread():
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        if not isinstance(sys.unraisablehook, _ReraiseIgnored):
            sys.unraisablehook = _ReraiseIgnored(sys.unraisablehook)


def ignore_signals() -> None:
    """Let nothing disturb the interpreter's own end, in which it gives up its handlers before it is done."""
    if threading.current_thread() is threading.main_thread():
        for number in (*ENDING_SIGNALS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)


def leave(status: int) -> NoReturn:
    """End the process, undisturbed by signals.

    If memory was lacking, without the interpreter's own end and that of native libraries, in which some crash then; but
    not without what others have registered for the end.
    """
    ignore_signals()
    if _lacked_memory.is_set():
        with suppress(Exception):  # for want of memory again
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or a pipe that nobody reads any more
                stream.flush()
        os._exit(status)
    sys.exit(status)


def show_crashes() -> None:
    """Should native code crash in this process, say where: for a worker, the main process says it."""
    try:
        faulthandler.enable()
    except (OSError, ValueError, AttributeError, RuntimeError):  # standard error is closed, or no file
        return


def exit_status(error: BaseException) -> int:
    """Say what a command failed with, and return the exit status for it."""
    if _comes_from_lack_of_memory(error):
        _lacked_memory.set()
    if _interruptions:  # an import of native code, say, turns it into an error of its own
        error = _interruptions[-1]
    if isinstance(error, KeyboardInterrupt):
        number = error.number if isinstance(error, SignalInterrupt) else signal.SIGINT
        ignore_signals()
        words = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        return _fail(words, 128 + number)
    if isinstance(error, ConfigError | CorpusError | FormatError | BackendUnavailableError):
        return _fail(str(error), USAGE)
    expected = _expected(error)
    if expected is None:
        traceback.print_exception(error)
        what = "".join(traceback.format_exception_only(error)).strip()
        expected = f"{what} (a defect of bpeflow: please report it, with all of the above)"
    return _fail(_stage_of(error) + expected, FAILURE)


def _comes_from_lack_of_memory(error: BaseException | None) -> bool:
    while error is not None and not (isinstance(error, OutOfMemoryError) or is_memory_error(error)):
        error = error.__cause__  # contexts may go round in circles
    return error is not None


def _expected(error: BaseException) -> str | None:
    """Cause and remedy of what need not be a defect; None for everything else."""
    if isinstance(error, BpeflowError | FlowError):
        return str(error)
    if is_memory_error(error):
        return f"{explain(error)}: add memory, or raise the limits (ulimit -v, ulimit -u, the container's)"
    if isinstance(error, ImportError):
        return f"{error}: the installation is not complete; install bpeflow again"
    if isinstance(error, OSError):
        remedy = f"; {_REMEDIES[error.errno]}" if error.errno in _REMEDIES else ""
        return f"{error.filename or 'input/output'}: {error.strerror or error}{remedy}"
    return None


def _stage_of(error: BaseException | None) -> str:
    """The stage of the pipeline in which it happened, if it was one; where a worker died, its message says so."""
    while error is not None:
        error = error.__cause__
        stage, worker = getattr(error, "stage", None), getattr(error, "worker", None)
        if stage is not None:
            return f"stage {stage!r}, worker {worker}: "
    return ""


def _fail(message: str, status: int) -> int:
    print(f"bpeflow: {one_line(message)}", file=sys.stderr)
    return status
