"""The parser of flags, and flags that several commands share. Its errors are one line and name the nearest flag."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NoReturn

from bpeflow._util.atomic import check_not_input, temporary_path
from bpeflow._util.text import suggestion
from bpeflow.errors import AlreadyExistsError, ConfigError, FormatError

#: Width of help on wide terminals: longer lines are harder to read.
_WIDTH = 100


class Parser(argparse.ArgumentParser):
    """A parser that knows its arguments, and raises `ConfigError` instead of printing usage.

    Attributes:
        in_config: flags whose values a config may have, too.
        elsewhere: settings that have no flag here, each with the remedy.
    """

    def __init__(self, command: str, description: str, arguments: str = "[flags]") -> None:
        """Prepare for the flags of a command.

        Args:
            command: the command's name.
            description: paragraphs, to be wrapped, and indented examples, to be printed as they are.
            arguments: the arguments on the usage line.
        """
        self.in_config: list[argparse.Action] = []
        self.elsewhere: dict[str, str] = {}
        self._outputs: list[str] = []
        self._required: list[argparse.Action] = []
        width = min(_WIDTH, get_terminal_size().columns)
        paragraphs = (
            text if text.startswith(" ") else fill(" ".join(text.split()), width) for text in description.split("\n\n")
        )
        super().__init__(
            prog=f"bpeflow {command}",
            description="\n\n".join(paragraphs),
            usage=f"bpeflow {command} {arguments}".rstrip(),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width),
            allow_abbrev=False,
        )
        for action in (None, "store"):
            self.register("action", action, _StoreOnce)

    @property
    def arguments(self) -> list[argparse.Action]:
        """All arguments, as argparse describes them."""
        return self._actions

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """The arguments that are flags, by each of their names."""
        return self._option_string_actions

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags. Raises `ConfigError` for any that does not fit."""
        for flag in self.flags.values():
            if flag.required:  # argparse would miss it before it sees an unexpected argument
                self._required.append(flag)
                flag.required = False
        options, rest = self.parse_known_intermixed_args(argv)  # an optional argument may follow flags
        if rest:
            self._refuse_unexpected(rest[0], argv)
        if self.in_config and options.config is not None:
            self._add_from_config(options)
        if missing := [flag.option_strings[0] for flag in self._required if getattr(options, flag.dest) is None]:
            self.error(f"missing: {', '.join(missing)}")
        for name in self._outputs:
            path = getattr(options, name)
            if path is not None and path.exists():
                _check_replaced(path, {key: value for key, value in vars(options).items() if key != name})
        return options

    def add_output(self, *names: str, **options: Any) -> None:
        """Add an argument for a file to write, and ``--overwrite``, without which the file must not exist."""
        self._outputs.append(self.add_argument(*names, **{"type": output_file, **options}).dest)
        if len(self._outputs) == 1:
            self.add_argument("--overwrite", action="store_true", help="replace an existing file")

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError`."""
        message = re.sub(r"(--\w+)/-\w\b", r"\1", message.removeprefix("argument "))  # without the short name
        value = "needs a value (--flag=VALUE if that begins with a dash)"
        message = re.sub("expected (at least )?one argument", value, message)
        message = message.replace("the following arguments are required", "missing")
        raise ConfigError(f"{message} (usage: {self.usage})")

    def _add_from_config(self, options: argparse.Namespace) -> None:
        """Set what no flag gives to what the config has."""
        from bpeflow.config.reading import read_config  # pydantic, which these commands need anyway

        values = read_config(options.config)
        for flag in self.in_config:
            if flag.dest in values and getattr(options, flag.dest) is None:
                value = values[flag.dest]
                argv = [flag.option_strings[0], *map(str, value if isinstance(value, list) else [value])]
                if rest := self.parse_known_args(argv, options)[1]:
                    self._refuse_unexpected(rest[0], argv)

    def _refuse_unexpected(self, word: str, argv: Sequence[str]) -> NoReturn:
        """Raise `ConfigError` for an unknown flag, or for a word that belongs to no flag."""
        if word.startswith("-"):
            from bpeflow.config.reading import command_with  # pydantic

            name = word.partition("=")[0]
            command = command_with(key := name.lstrip("-"))
            where = self.elsewhere.get(key, f"a setting of {command}" if command else "")
            self.error(f"unknown flag {name}{where and f': {where}'}{suggestion(name, self.flags)}")
        why = ""
        for name in (given.partition("=")[0] for given in argv[: argv.index(word)]):
            if flag := self.flags.get(name):  # the last one before the word
                takes = "one" if flag.nargs is None else "no" if flag.nargs == 0 else ""
                why = f": {name} takes {takes} value" if takes else ""
        self.error(f"unexpected argument {word!r}{why}")


class _StoreOnce(argparse.Action):
    """Stores a value. Of a flag that is given twice, argparse would take the last one."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, name: str | None = None) -> None:
        if name and getattr(namespace, self.dest, self.default) is not self.default:
            raise ConfigError(f"{name} is given twice: remove one")
        setattr(namespace, self.dest, values)


# ---- flags of several commands ----


def add_tokenizer_flag(parser: Parser) -> None:
    """Add the required ``--tokenizer``."""
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True,
        help="run folder, tokenizer in any known format, or published name, e.g. gpt2 or Qwen/Qwen3-8B",
    )  # fmt: skip
    add_description_flags(parser)


def add_tokenizer(parser: Parser, name: str = "tokenizer", metavar: str = "TOKENIZER") -> None:
    """Add an argument for a tokenizer."""
    parser.add_argument(
        name, metavar=metavar, type=Path, help="run folder, tokenizer in any known format, or published name"
    )


def add_description_flags(parser: Parser) -> None:
    """Add the flags for what a file of ranks lacks, for `description`."""
    parser.add_argument(
        "--known", metavar="NAME",
        help="published tokenizer whose pattern and special tokens to use with the file, e.g. p50k_edit or "
        "o200k_harmony (default: recognised by content)",
    )  # fmt: skip
    parser.add_argument(
        "--pattern", metavar="TEXT", nargs="+",
        help="split pattern, or several: each splits the pieces of the previous one (default: the file's own)",
    )  # fmt: skip
    parser.add_argument(
        "--special_tokens", metavar="TEXT", nargs="+", type=_special_token,
        help="further special tokens, which the file lacks: TEXT, or TEXT=ID with its id",
    )  # fmt: skip


def description(options: argparse.Namespace) -> Mapping[str, Any]:
    """Return the flags of `add_description_flags` as keywords of `Tokenizer.load`."""
    return {
        "pattern": options.pattern,
        "known": options.known,
        "special_tokens": dict(options.special_tokens or ()),
    }


def _check_replaced(path: Path, options: Mapping[str, Any]) -> None:
    """Raise an error if an existing file is not to be replaced, or is named by another option, too."""
    if not options["overwrite"]:
        raise AlreadyExistsError(f"{path}: already exists; name another file, or give --overwrite to replace it")
    from bpeflow.run_dir.layout import is_of_run  # only for a file that exists

    if is_of_run(path):
        raise AlreadyExistsError(f"{path}: a file of a training run is not replaced; name another file")
    values = (value if isinstance(value, list | tuple) else [value] for value in options.values())
    check_not_input([path], [value for value in chain.from_iterable(values) if isinstance(value, str | Path)])


def _special_token(text: str) -> tuple[str, int | None]:
    token, _, token_id = text.rpartition("=")
    if not token or not token_id[-1:].isalnum():  # a token with an equals sign in it, such as <tool=search>
        return text, None
    if not token_id.isdecimal():
        raise argparse.ArgumentTypeError(f"need TEXT=ID with an id in digits, found {text!r}")
    return token, int(token_id)


def add_counts_flag(parser: Parser, *, required: bool = True) -> None:
    """Add ``--counts``."""
    parser.add_argument(
        "--counts", metavar="PATH", type=Path, required=required, help="run folder, or counts as .npz or .tsv"
    )


def add_json_flag(parser: Parser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with all entries of all lists")


def add_quiet_flag(parser: Parser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", "-q", action="store_true", help="print errors only")


# ---- types of values ----


def output_file(text: str) -> Path:
    """Parse the path of a file to write. It appears only when it is complete.

    Raises `ArgumentTypeError` or `OSError` if there can be no such file, before any work.
    """
    if text == "-":
        raise argparse.ArgumentTypeError("standard output cannot be written to; name a file")
    try:
        temporary_path(Path(text))
    except FormatError as error:  # a ValueError, of which argparse would leave out the message
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def page_file(text: str) -> Path:
    """Parse the path of a page to write, as `output_file` does."""
    if Path(text).suffix.lower() not in (".html", ".htm"):
        raise argparse.ArgumentTypeError(f"{text} does not end in .html, and the file is HTML")
    return output_file(text)


def size(text: str) -> int:
    """Parse a size in bytes, such as ``8mb``."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise argparse.ArgumentTypeError(f"need a size such as 8mb, found {text!r}") from None


def number(text: str) -> int:
    """Parse a number of threads or rounds."""
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"need a whole number from 1 to 4096, found {text!r}")
    return int(text)
