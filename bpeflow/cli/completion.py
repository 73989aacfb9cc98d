"""`bpeflow completion`: print a completion script for a shell."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from bpeflow._util.machine import load_extra
from bpeflow.backends import BACKENDS
from bpeflow.cli.main import COMMANDS, load_command
from bpeflow.cli.parser import Parser
from bpeflow.cli.settings import SETTING
from bpeflow.config import Settings, all_settings
from bpeflow.config.encoding import EncodeSettings
from bpeflow.formats.any_format import FORMATS
from bpeflow.formats.published import PUBLISHED
from bpeflow.pretokenize.patterns import NAMED_PATTERNS, PUBLISHED_PATTERNS

SHELLS = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Print a script that completes commands, flags and their values in a shell. Save it where the shell looks for it
(create the folder if it is missing):

  bpeflow completion bash > ~/.local/share/bash-completion/completions/bpeflow
  bpeflow completion zsh > ~/.zfunc/_bpeflow       with `fpath+=~/.zfunc` before compinit in ~/.zshrc
  bpeflow completion fish > ~/.config/fish/completions/bpeflow.fish
"""

#: What flags take, by their metavar.
_FILES, _FOLDERS = ("FILE", "PATH", "SRC", "DST", "TOKENIZER", "A", "B"), ("FOLDER", "RUN")


def completion_parser() -> Parser:
    """Return the parser of its flags."""
    parser = Parser("completion", _DESCRIPTION, "|".join(SHELLS))
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def run_completion(options: Namespace) -> None:
    """Print the script."""
    shtab = load_extra("shtab", "completion", "completion scripts")
    print(shtab.complete(_all_commands(shtab), options.shell))  # noqa: T201


def _all_commands(shtab: Any) -> argparse.ArgumentParser:
    """Return one parser of all commands. Without a command, it takes the flags of `train`."""
    parsers: dict[str, Parser] = {name: load_command(name)[0] for name in COMMANDS}
    for parser in parsers.values():
        for argument in parser.arguments:
            _suggest(argument, shtab)
    root = argparse.ArgumentParser("bpeflow", parents=[parsers["train"]], add_help=False)
    commands = root.add_subparsers(parser_class=argparse.ArgumentParser)
    for name, parser in parsers.items():
        commands.add_parser(name, parents=[parser], add_help=False, help=COMMANDS[name])
    commands.add_parser("help", add_help=False, help="describe a command").add_argument(
        "command", choices=list(COMMANDS)
    )
    return root


def _suggest(argument: argparse.Action, shtab: Any) -> None:
    """Give an argument the values that shells suggest. They are no limit, as `choices` of a parser in use are."""
    settings = [*all_settings(EncodeSettings), *all_settings(Settings)]
    values: dict[str, Sequence[str]] = {f"{SETTING}{setting.key}": setting.choices for setting in settings}
    values |= {
        "assignments": [f"{setting.key}=" for setting in all_settings(Settings) if setting.group],
        f"{SETTING}pattern": [*NAMED_PATTERNS, *PUBLISHED_PATTERNS],
        "pattern": [*NAMED_PATTERNS, *PUBLISHED_PATTERNS],
        "known": list(PUBLISHED),
        f"{SETTING}backend": ["auto", *(backend.name for backend in BACKENDS)],
        "backends": [backend.name for backend in BACKENDS],
        "to": [known.name for known in FORMATS],
    }
    if suggested := values.get(argument.dest):
        argument.choices = suggested
    elif argument.metavar in _FILES:
        argument.complete = shtab.FILE  # type: ignore[attr-defined]
    elif argument.metavar in _FOLDERS:
        argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
