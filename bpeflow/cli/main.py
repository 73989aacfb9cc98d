"""The command line's entry point: set up the process, find the command, run it, turn failures into exit statuses."""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from typing import IO, cast

from bpeflow._util.streams import LenientStream, OutputStream
from bpeflow._util.text import close_matches
from bpeflow.cli.commands import COMMANDS, answer
from bpeflow.cli.exit import end_on_signals, exit_status
from bpeflow.errors import ConfigError


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
    if (status := answer(argv)) is not None:
        return status
    name, rest = _command(argv)
    command = import_module(f"bpeflow.cli.{name}")
    command.run(command.make_parser().parse(rest))
    return 0


def _command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command and its arguments."""
    name, rest = argv[0], argv[1:]
    if name in ("-V", "--version"):
        return "version", rest
    if name.startswith("-"):
        return "train", argv
    if name == "help":
        name, rest = rest[0], ["--help"]
    if name not in COMMANDS:
        close = close_matches(name, COMMANDS)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(COMMANDS)}"
        raise ConfigError(f"unknown command {name!r}; {hint}")
    return name, rest


def _with_underscores(argument: str) -> str:
    """Accept ``--vocab-size`` for ``--vocab_size``: both spellings are common, one is documented."""
    name, equals, value = argument.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if name.startswith("--") else argument


def _set_up_process() -> None:
    """Handle signals and crashes, and escape characters that the terminal cannot show instead of failing on them."""
    end_on_signals()
    # If a standard stream was closed, a file of the run would get its number, and with it the messages of native code.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    with suppress(OSError, ValueError, AttributeError, RuntimeError):  # standard error is closed, or not a file
        faulthandler.enable()  # prints the stack if native code crashes; for a worker, this process reports the crash
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
