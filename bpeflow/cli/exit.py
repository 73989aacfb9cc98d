"""How the command line ends: signals, exit statuses and the final error line. Imports none of the dependencies."""

from __future__ import annotations

import atexit
import errno
import os
import re
import signal
import sys
import threading
import time
from ast import literal_eval
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import IO, NoReturn

from bpeflow._util.streams import LenientStream
from bpeflow._util.text import one_line
from bpeflow.errors import (
    BackendUnavailableError,
    BpeflowError,
    ConfigError,
    CorpusError,
    EngineUnavailableError,
    FlowError,
    FormatError,
    MissingLibraryError,
    OutputError,
    SettingsError,
    is_memory_error,
    out_of_memory,
)
from bpeflow.flow.errors import WorkerTracebackError

#: The signals by which users, schedulers and terminals end a process.
ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

#: Errors that ask for another input or other settings, or for a library.
_USAGE_ERRORS = (
    ConfigError, CorpusError, FormatError, BackendUnavailableError, EngineUnavailableError, MissingLibraryError
)  # fmt: skip

#: Exit statuses for invalid input or settings, and for a failed run. A signal gives 128 + its number, as in shells.
USAGE, FAILURE = 2, 1

#: Seconds within which another Ctrl-C is taken for the same one, pressed in impatience or repeated by a program between
#: the terminal and this process. Cleaning up takes less.
_SAME_INTERRUPT = 2.0

_REMEDIES = {
    errno.ENOSPC: "make room on its disk, or write elsewhere",
    errno.EDQUOT: "your quota is used up: make room, or write elsewhere",
    errno.EFBIG: "a limit of file sizes (ulimit -f), or of the file system: raise it, or write elsewhere",
    errno.EMFILE: "raise the limit (ulimit -n), or use fewer workers",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check who may read and write there",
    errno.EIO: "check the disk or the network",
}

#: A keyword argument with its value, which is a literal of Python.
_KEYWORD = re.compile(
    r"""(?<![^ (])([a-z]\w*)=(True|\d+(?:\.\d+)?|'[^']*'|"[^"]*"|\[[^]]*\]|\{[^}]*\})(?![\w/]|[,.]\w)"""
)

#: The status passed to `leave`.
_leaving: list[int] = []

#: The signals that have interrupted since `end_on_signals`. Not the exceptions, which would keep the frames that they
#: left, and what these would clean up at their end.
_interruptions: list[int] = []


def end_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP raise `KeyboardInterrupt`: processes are joined, and temporary files removed.

    Repeated signals within `_SAME_INTERRUPT` seconds do not disturb the clean-up. A signal that is ignored, as under
    nohup, stays ignored.
    """
    since = -_SAME_INTERRUPT
    _interruptions.clear()

    def interrupt(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal since
        if time.monotonic() - since > _SAME_INTERRUPT:
            since = time.monotonic()
            _interruptions.append(number)
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Ignore signals from now on: the interpreter removes its handlers before it has finished shutting down."""
    if threading.current_thread() is threading.main_thread():
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def leave(status: int) -> NoReturn:
    """End the process, undisturbed by signals and by broken output."""
    ignore_signals()
    _leaving.append(status)
    sys.exit(status)


@atexit.register  # before all others, as this module is imported first: so it is called last
def _skip_shutdown() -> None:
    """Exit without the interpreter's shutdown, which frees every object one by one: 0.1 s after a training.

    The kernel frees them all at once. Functions that libraries have registered to be called at exit have been called.
    """
    if _leaving:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                _flush_or_drop(stream)
        os._exit(_leaving[-1])


def _flush_or_drop(stream: IO[str]) -> None:
    """Flush a stream, or send what it cannot write to the null device: the interpreter would try again and complain."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exit_status(error: BaseException) -> int:
    """Print why a command failed, and return its exit status."""
    if _interruptions or isinstance(error, KeyboardInterrupt):  # importing native code, for one, makes it another error
        number = _interruptions[-1] if _interruptions else signal.SIGINT
        ignore_signals()
        words = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        return _fail([words], 128 + number)
    if isinstance(error, OutputError) and isinstance(error.__cause__, BrokenPipeError):
        return 128 + signal.SIGPIPE  # its reader wants no more of it, as `head`, and needs no message
    if isinstance(error, SettingsError):
        return _fail(str(error).splitlines(), USAGE)
    if isinstance(error, _USAGE_ERRORS):
        return _fail([str(error)], USAGE)
    expected = _expected(error)
    if expected is None:
        sys.excepthook(type(error), error, error.__traceback__)
        expected = f"{type(error).__name__}: {error} (a bug in bpeflow: please report it with everything above)"
    return _fail([_stage_of(error) + expected], FAILURE)


def _expected(error: BaseException) -> str | None:
    """Return cause and remedy of an error that is not necessarily a bug; None for any other."""
    if isinstance(error, BpeflowError | FlowError):
        return str(error)
    if is_memory_error(error):
        return f"{out_of_memory(error)}: add memory, or raise the limits (ulimit -v, ulimit -u, the container's)"
    if isinstance(error, ModuleNotFoundError):
        problem = f"bpeflow's dependencies are not installed for {sys.executable} ({error})"
        return f"{problem}: pip install bpeflow; in a clone, make quickstart, and use .venv/bin/python -m bpeflow"
    if isinstance(error, ImportError):
        return f"{error}: the installation is incomplete (install bpeflow again), or there was too little memory"
    if isinstance(error, OSError):
        remedy = f"; {_REMEDIES[error.errno]}" if error.errno in _REMEDIES else ""
        return f"{error.filename or 'input/output'}: {error.strerror or error}{remedy}"
    return None


def _stage_of(error: BaseException | None) -> str:
    """Return the pipeline stage in which the error was raised, if any. A dead worker's message names it already."""
    while error is not None:
        error = error.__cause__
        if isinstance(error, WorkerTracebackError):
            return f"stage {error.stage!r}, worker {error.worker}: "
    return ""


def _fail(lines: Sequence[str], status: int) -> int:
    messages = LenientStream(sys.stderr)
    for line in lines:
        messages.write(f"bpeflow: {one_line(with_flags(line))}\n")
    messages.flush()
    return status


# ---- the library's messages ----


def with_flags(message: str) -> str:
    """Return a message of the library with keyword arguments as flags.

    >>> with_flags("use bad_records='skip', val_fraction=0.005, or resume=True")
    'use --bad_records skip, --val_fraction 0.005, or --resume'
    """
    return _KEYWORD.sub(_as_flag, message)


def _as_flag(keyword: re.Match[str]) -> str:
    try:
        value = literal_eval(keyword[2])
    except (SyntaxError, ValueError):  # a text of the user's
        return keyword[0]
    if isinstance(value, dict):
        value = ",".join(f"{name}={inner}" for name, inner in value.items())
    words = [] if value is True else value if isinstance(value, list) else [value]
    return " ".join([f"--{keyword[1]}", *(quote(str(word)) for word in words)])
