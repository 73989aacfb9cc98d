"""The parser of a command's flags: errors are one line and name the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from shlex import quote
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NoReturn, Protocol

from bpeflow._util.text import close_matches
from bpeflow.errors import ConfigError

#: Width of help on wide terminals: longer lines are harder to read.
_WIDTH = 100

#: What the destination of a setting's flag begins with; its key follows.
SETTING = "setting "

#: What other tools call a flag, and what it is called here, depending on the command.
_ELSEWHERE = {
    "--output": ("--out_dir", "--out"),
    "--output_dir": ("--out_dir", "--out"),
    "--size": ("--vocab_size",),
    "--file": ("--input",),
    "--files": ("--input",),
    "--corpus": ("--input",),
    "--model": ("--tokenizer",),
    "--vocab": ("--tokenizer", "--vocab_size"),
    "--jobs": ("--threads", "--num_counter"),
    "--num_workers": ("--num_counter", "--threads"),
    "--workers": ("--num_counter", "--threads"),
    "--force": ("--overwrite",),
}


class Parser(argparse.ArgumentParser):
    """A parser that knows its arguments, and raises `ConfigError` instead of printing usage.

    Attributes:
        arguments: all arguments, as argparse describes them.
    """

    def __init__(self, **options: Any) -> None:
        self.arguments: list[argparse.Action] = []
        super().__init__(**options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument."""
        self.arguments.append(super().add_argument(*names, **options))
        return self.arguments[-1]

    def describe_settings(self) -> None:
        """Give the flags of settings the settings' own descriptions as help, which takes longer than most parsing."""
        from bpeflow.cli.setting_help import describe_setting

        for argument in self.arguments:
            if argument.dest.startswith(SETTING) and argument.help is None:
                argument.help = describe_setting(argument.dest.removeprefix(SETTING)).help_line().replace("%", "%%")

    def format_help(self) -> str:
        """Return the help."""
        self.describe_settings()
        return super().format_help()

    def flag_group(self, title: str) -> FlagGroup:
        """Return a new group of flags, which help shows together."""
        return FlagGroup(self, self.add_argument_group(title))

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags. Raises `ConfigError` for any that does not fit."""
        known = [name for argument in self.arguments for name in argument.option_strings]
        for word in argv[: argv.index("--") if "--" in argv else None]:
            if (flag := word.partition("=")[0]).startswith("--") and flag not in known:
                self._refuse(flag, known)
        required = [argument for argument in self.arguments if argument.required and argument.option_strings]
        for argument in required:
            argument.required = False  # until it is known that nothing is unexpected, which explains more
        options, rest = self.parse_known_intermixed_args(argv)  # an optional argument may follow flags
        missing = [argument.option_strings[0] for argument in required if getattr(options, argument.dest) is None]
        for word in rest:
            if word.startswith("-"):
                self._refuse(word, known)
            likely = [name for name in (*missing, "--input") if name in known]
            hint = f"; did you mean {likely[0]} {quote(word)}?" if likely else ""
            self.error(f"unexpected argument {word!r}{hint}")
        if missing:
            self.error(f"missing: {', '.join(missing)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError`."""
        message = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
        message = message.replace("expected one argument", "needs a value (--flag=VALUE if that begins with a dash)")
        raise ConfigError(f"{message}{self._pointer()}")

    def _refuse(self, flag: str, known: Sequence[str]) -> NoReturn:
        problem = f"unknown flag {flag}"
        if "--set" in known:
            from bpeflow.cli.setting_help import settings_by_key

            if setting := settings_by_key().get(flag[2:]):
                raise ConfigError(f"{problem}; the setting {setting.key} is given by {setting.assignment()}")
        close = [name for name in _ELSEWHERE.get(flag, ()) if name in known]
        close = close or close_matches(flag, known)
        if close:
            raise ConfigError(f"{problem}; did you mean {close[0]}?")
        raise ConfigError(f"{problem}{self._pointer()}")

    def _pointer(self) -> str:
        return f" (see {self.prog} --help)"


class _Container(Protocol):
    """What argparse adds arguments to."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action: ...

    def add_mutually_exclusive_group(self, *, required: bool = False) -> Any: ...


class FlagGroup:
    """A group of a parser's flags."""

    def __init__(self, parser: Parser, group: _Container) -> None:
        self._parser = parser
        self._group = group

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add a flag."""
        self._parser.arguments.append(self._group.add_argument(*names, **options))
        return self._parser.arguments[-1]

    def exclusive(self) -> FlagGroup:
        """Return a group of flags of which only one may be given."""
        return FlagGroup(self._parser, self._group.add_mutually_exclusive_group())


def new_parser(command: str, description: str, arguments: str = "[flags]") -> Parser:
    """Return a parser for the flags of a command.

    Args:
        command: the command's name.
        description: paragraphs, which are wrapped, and indented examples, which are not.
        arguments: the arguments on the usage line.
    """
    width = min(_WIDTH, get_terminal_size().columns)
    paragraphs = (
        text if text.startswith(" ") else fill(" ".join(text.split()), width) for text in description.split("\n\n")
    )
    return Parser(
        prog=f"bpeflow {command}",
        description="\n\n".join(paragraphs),
        usage=f"bpeflow {command} {arguments}".rstrip(),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width),
        allow_abbrev=False,
    )
