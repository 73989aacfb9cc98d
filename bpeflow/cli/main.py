"""The command line's entry point: the commands, and how one is found and run. Imports none of the dependencies."""

from __future__ import annotations

import faulthandler
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, cast

from bpeflow import __version__
from bpeflow._util.streams import LenientStream, OutputStream
from bpeflow._util.text import unknown_name
from bpeflow.cli.exit import end_on_signals, exit_status
from bpeflow.errors import ConfigError

if TYPE_CHECKING:
    from argparse import Namespace

    from bpeflow.cli.parser import Parser

GROUPS = {
    "Train": {
        "train": "train a tokenizer from a corpus (the default command)",
        "merge": "learn merges again from saved counts",
        "compare": "compare merge backends on saved counts",
        "counts": "convert counts to TSV, and back",
    },
    "Use tokenizers": {
        "encode": "encode a corpus to a token file",
        "decode": "decode a token file to text",
        "evaluate": "compare tokenizers on corpora",
        "report": "write a page about a run",
        "convert": "write a tokenizer in another format",
    },
    "Look at tokenizers": {
        "show": "show the tokens of a text, and the merges that made them",
        "inspect": "describe a vocabulary, and how it fits a corpus",
        "diff": "compare two vocabularies",
    },
    "Look up": {
        "config": "print every setting with its description and default",
        "backends": "list the merge backends, and why any is unavailable",
        "completion": "print a completion script for bash, zsh or fish",
        "help": "describe a command and its flags",
    },
}

#: All commands, in the order in which they are listed.
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items() if name != "help"}

#: The modules of commands that have none of their own.
_MODULES = {"counts": "convert", "decode": "encode"}

_HEAD = """\
Train byte-level BPE tokenizers from corpora of any size, and encode with them.

usage: bpeflow COMMAND [flags]
"""
_TAIL = """\
Examples
  bpeflow train --input 'corpus/*.txt' --vocab_size 32k --out_dir runs/mine
  bpeflow encode --tokenizer runs/mine --input 'corpus/*.txt' --out train.bin

`bpeflow help COMMAND` describes a command and its flags; --version prints the
version, and `bpeflow backends --verbose` how it was built."""


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
    name, rest = (argv[0], argv[1:]) if argv else ("", [])
    if name in ("-V", "--version"):
        print(f"bpeflow {__version__}")  # noqa: T201
        return 0
    if name in ("", "help", "-h", "--help"):
        if not rest or rest[0] in ("help", "-h", "--help"):
            print(_list_commands())  # noqa: T201
            return 0 if argv else 2
        name, rest = rest[0], ["--help"]
    elif name.startswith("-"):
        name, rest = "train", argv
    if name not in COMMANDS:
        raise ConfigError(f"{unknown_name('command', name, COMMANDS)}; to train on a file: bpeflow --input FILE")
    parser, run = load_command(name)
    run(parser.parse(rest))
    return 0


def load_command(name: str) -> tuple[Parser, Callable[[Namespace], None]]:
    """Return the parser of a command's flags, and the function that runs it: `NAME_parser` and `run_NAME`."""
    module = import_module(f"bpeflow.cli.{_MODULES.get(name, name)}")
    return getattr(module, f"{name}_parser")(), getattr(module, f"run_{name}")


def _list_commands() -> str:
    lines = [_HEAD]
    for title, commands in GROUPS.items():
        lines += [title, *(f"  {name:<12}{summary}" for name, summary in commands.items()), ""]
    return "\n".join([*lines, _TAIL])


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
