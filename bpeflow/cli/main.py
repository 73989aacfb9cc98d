"""The command line's entry point: set up the process, find the command, run it, turn failures into exit statuses."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import IO, cast

from bpeflow._util.streams import LenientStream, OutputStream
from bpeflow.cli.exit import end_on_signals, exit_status, show_crashes

#: Each command has a module with a function `run`, imported when it is called: commands start fast that need little.
COMMANDS = ("train", "merge", "compare", "counts", "encode", "decode", "evaluate", "convert", "backends", "config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, `train` by default, and return the exit status."""
    argv = [_with_underscores(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    try:
        _set_up_process()
        output, messages = OutputStream(sys.stdout), LenientStream(sys.stderr)
        with redirect_stdout(cast("IO[str]", output)), redirect_stderr(cast("IO[str]", messages)):
            try:
                return _run(argv)
            finally:
                output.flush()
    except SystemExit:
        raise
    except BaseException as error:  # not only Exception: a panic in a Rust library derives from BaseException
        return exit_status(error)


def _run(argv: Sequence[str]) -> int:
    if argv == ["--version"]:
        return _print_version()
    name, rest = (argv[0], argv[1:]) if argv and argv[0] in COMMANDS else ("train", argv)
    run: Callable[[Sequence[str]], int] = import_module(f"bpeflow.cli.{name}").run
    return run(rest)


def _with_underscores(argument: str) -> str:
    """Accept ``--vocab-size`` for ``--vocab_size``: both spellings are common, one is documented."""
    name, equals, value = argument.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if name.startswith("--") else argument


def _print_version() -> int:
    from importlib.metadata import version

    print(f"bpeflow {version('bpeflow')}")  # noqa: T201
    return 0


def _set_up_process() -> None:
    """Handle signals and crashes, and escape characters that the terminal cannot show instead of failing on them."""
    end_on_signals()
    # If a standard stream was closed, a file of the run would get its number, and with it the messages of native code.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    show_crashes()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
