"""How the command line ends: signals, exit statuses and the final error line."""

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

#: The signals by which users, schedulers and terminals end a process.
ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

#: Exit statuses for invalid input or settings, and for a failed run. A signal gives 128 + its number, as in shells.
USAGE, FAILURE = 2, 1

#: Seconds within which another Ctrl-C is taken for the same one, pressed in impatience or repeated by a program between
#: the terminal and this process. Cleaning up takes less.
_SAME_INTERRUPT = 2.0

#: Seconds after which an interruption that Python ignored is raised again. The callback that it interrupted is over by
#: then.
_ONCE_MORE = 0.1

_REMEDIES = {
    errno.ENOSPC: "make room on its disk, or write elsewhere",
    errno.EDQUOT: "your quota is used up: make room, or write elsewhere",
    errno.EFBIG: "a limit of file sizes (ulimit -f), or of the file system: raise it, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "change its permissions, or use another one",
    errno.EPERM: "change its permissions, or use another one",
    errno.EMFILE: "raise the limit (ulimit -n), or use fewer workers",
    errno.ENFILE: "the whole system has too many files open: close some",
    errno.EIO: "check the disk or the network",
}


class SignalInterrupt(KeyboardInterrupt):
    """Ctrl-C, or a signal that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


#: Interruptions since `end_on_signals`.
_interruptions: list[SignalInterrupt] = []

#: Set when a command ran out of memory. The exception itself is not kept: its frames would keep their objects alive.
_out_of_memory = threading.Event()


class _ReraiseIgnored:
    """A `sys.unraisablehook` that raises an ignored interruption again, a moment later.

    Python ignores exceptions in its callbacks, such as those of weak references, so a Ctrl-C in one would be lost. A
    timer raises it again rather than a thread, since a callback may run while `threading` holds its locks.
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
    """Turn Ctrl-C, SIGTERM and SIGHUP into an exception, so that processes are joined and temporary files removed.

    Repeated signals within `_SAME_INTERRUPT` seconds do not disturb the clean-up. A signal that is ignored, as under
    nohup, stays ignored.
    """
    since = -_SAME_INTERRUPT
    _interruptions.clear()

    def interrupt(number: int, frame: object) -> None:  # noqa: ARG001
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
    """Ignore signals from now on: the interpreter removes its handlers before it has finished shutting down."""
    if threading.current_thread() is threading.main_thread():
        for number in (*ENDING_SIGNALS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)


def leave(status: int) -> NoReturn:
    """End the process, undisturbed by signals.

    After running out of memory, skip the shutdown of the interpreter and of native libraries, some of which crash then,
    but run the registered exit functions.
    """
    ignore_signals()
    if _out_of_memory.is_set():
        with suppress(Exception):  # out of memory again
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or a broken pipe
                stream.flush()
        os._exit(status)
    sys.exit(status)


def show_crashes() -> None:
    """Print the stack if native code crashes in this process. For a worker, the main process reports the crash."""
    try:
        faulthandler.enable()
    except (OSError, ValueError, AttributeError, RuntimeError):  # standard error is closed, or not a file
        return


def exit_status(error: BaseException) -> int:
    """Print why a command failed, and return its exit status."""
    if _is_caused_by_memory(error):
        _out_of_memory.set()
    if _interruptions:  # importing native code, for one, turns it into another error
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
        expected = f"{what} (a bug in bpeflow: please report it with everything above)"
    return _fail(_stage_of(error) + expected, FAILURE)


def _is_caused_by_memory(error: BaseException | None) -> bool:
    while error is not None and not (isinstance(error, OutOfMemoryError) or is_memory_error(error)):
        error = error.__cause__  # not __context__, which may be circular
    return error is not None


def _expected(error: BaseException) -> str | None:
    """Return cause and remedy of an error that is not necessarily a bug; None for any other."""
    if isinstance(error, BpeflowError | FlowError):
        return str(error)
    if is_memory_error(error):
        return f"{explain(error)}: add memory, or raise the limits (ulimit -v, ulimit -u, the container's)"
    if isinstance(error, ImportError):
        return f"{error}: the installation is incomplete; install bpeflow again"
    if isinstance(error, OSError):
        remedy = f"; {_REMEDIES[error.errno]}" if error.errno in _REMEDIES else ""
        return f"{error.filename or 'input/output'}: {error.strerror or error}{remedy}"
    return None


def _stage_of(error: BaseException | None) -> str:
    """Return the pipeline stage in which the error was raised, if any. A dead worker's message names it already."""
    while error is not None:
        error = error.__cause__
        stage, worker = getattr(error, "stage", None), getattr(error, "worker", None)
        if stage is not None:
            return f"stage {stage!r}, worker {worker}: "
    return ""


def _fail(message: str, status: int) -> int:
    print(f"bpeflow: {one_line(message)}", file=sys.stderr)  # noqa: T201
    return status
