"""The parser of flags, and flags that several commands share. Its errors are one line and name the nearest flag."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from pathlib import Path
from shlex import join, quote
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn

from bpeflow._util.atomic import check_not_input, temporary_path
from bpeflow._util.text import close_matches
from bpeflow.errors import AlreadyExistsError, ConfigError, FormatError

if TYPE_CHECKING:
    from bpeflow.config import Setting

#: Width of help on wide terminals: longer lines are harder to read.
_WIDTH = 100


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
    "--seed": (),  # nothing to train is random
    "--weight": (),  # of a source: `sources` in a config, or by --set
    "--pattern": (),  # no misspelling: these counts or this corpus have a pattern already
}


class Parser(argparse.ArgumentParser):
    """A parser that knows its arguments, and raises `ConfigError` instead of printing usage.

    Attributes:
        settings: the settings that have flags, by key.
        refused: flags of other commands, and why this one does not have them.
        in_config: flags whose values a config may have, too.
    """

    def __init__(self, command: str, description: str, arguments: str = "[flags]") -> None:
        """Prepare for the flags of a command.

        Args:
            command: the command's name.
            description: paragraphs, to be wrapped, and indented examples, to be printed as they are.
            arguments: the arguments on the usage line.
        """
        self.settings: dict[str, Setting] = {}
        self.refused: dict[str, str] = {}
        self.in_config: list[argparse.Action] = []
        self._outputs: list[str] = []
        self._greedy = ""  # the last flag that takes several words
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

    @property
    def arguments(self) -> list[argparse.Action]:
        """All arguments, as argparse describes them."""
        return self._actions

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the values of the flags. Raises `ConfigError` for any that does not fit."""
        known = [name for argument in self.arguments for name in argument.option_strings]
        for word in argv[: argv.index("--") if "--" in argv else None]:
            if (flag := word.partition("=")[0]).startswith("--") and flag not in known:
                self._refuse(flag, known)
        if argv and not argv[0].startswith("-") and all(argument.option_strings for argument in self.arguments):
            words = [*takewhile(lambda word: not word.startswith("-"), argv)]
            self._refuse_positional(words, argv)  # before flags that are missing
        self._refuse_repeated(argv)
        if any(word.partition("=")[0] == "--config" for word in argv):
            for argument in self.in_config:
                argument.required = False  # `corpus_of` looks for it
        lists = {name for argument in self.arguments if argument.nargs == "+" for name in argument.option_strings}
        self._greedy = next((word for word in reversed(argv) if word in lists), "")
        options, rest = self.parse_known_intermixed_args(argv)  # an optional argument may follow flags
        for word in rest:
            if word.startswith("-"):
                self._refuse(word, known)
            self._refuse_positional([word], argv)
        for name in self._outputs:
            path = getattr(options, name)
            if path not in (None, Path("-")) and path.exists():
                _check_replaced(path, {key: value for key, value in vars(options).items() if key != name})
        return options

    def add_output(self, *names: str, **options: Any) -> None:
        """Add an argument for a file to write, and ``--overwrite``, without which the file must not exist."""
        self._outputs.append(self.add_argument(*names, **{"type": output_file, **options}).dest)
        if len(self._outputs) == 1:
            self.add_argument("--overwrite", action="store_true", help="replace an existing file")

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError`."""
        message = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
        message = re.sub(r"(--\w+)/-\w\b", r"\1", message)  # without the short name
        for expected in ("expected one argument", "expected at least one argument"):
            message = message.replace(expected, "needs a value (--flag=VALUE if that begins with a dash)")
        is_positional = message.startswith("missing: ") and "--" not in message
        if is_positional and self._greedy:
            missing = message.removeprefix("missing: ")
            message += f"; {self._greedy} takes all words after it: put {missing} before it"
        raise ConfigError(f"{message} ({f'usage: {self.usage}' if is_positional else f'see {self.prog} --help'})")

    def _refuse_repeated(self, argv: Sequence[str]) -> None:
        """Raise `ConfigError` for a flag of one value that is given twice: argparse would take the last value."""
        flags = {
            name: flag
            for flag in self.arguments
            if type(flag).__name__ == "_StoreAction"
            for name in flag.option_strings
        }
        given: set[str] = set()
        for name in (word.partition("=")[0] for word in argv):
            if name in flags and flags[name].dest in given:
                raise ConfigError(f"{name} is given twice: remove one")
            given |= {flags[name].dest} if name in flags else set()

    def _refuse_positional(self, words: Sequence[str], argv: Sequence[str]) -> NoReturn:
        """Suggest the flags that words may belong to: ``--input`` and required flags that are missing."""
        given = {word.partition("=")[0] for word in argv}
        if argv[: argv.index(words[0])][-1:] == ["--json"]:
            self.error(f"--json takes no value, as it prints: --json > {quote(words[0])}")
        if any(argument.metavar == "TEXT" and not argument.option_strings for argument in self.arguments):
            self.error(f"unexpected argument {words[0]!r}: put a TEXT of several words in quotes")
        flags = {argument.option_strings[0]: argument for argument in self.arguments if argument.option_strings}
        before = argv[: argv.index(words[0])][-2:-1]
        if before and before[0] in flags and flags[before[0]].nargs is None:
            several = f"; for several: {before[0]}s" * (f"{before[0]}s" in flags)
            self.error(f"unexpected argument {words[0]!r}: {before[0]} takes one value{several}")
        required = (name for name, argument in flags.items() if argument.required or name == "--counts")
        expected = ["--input", *required]
        missing = [name for name in expected if name in flags and given.isdisjoint(flags[name].option_strings)]
        if len(words) > 1:
            missing[:2] = reversed(missing[:2])  # the tokenizer, then the input
        suggested = " ".join(f"{name} {quote(word)}" for name, word in zip(missing, words, strict=False))
        if missing == ["--input"]:
            suggested = f"--input {join(words)}"
        hint = f"; did you mean {suggested}?" if missing else ""
        self.error(f"unexpected argument {words[0]!r}{hint}")

    def _refuse(self, flag: str, known: Sequence[str]) -> NoReturn:
        if reason := self.refused.get(flag):
            raise ConfigError(f"{flag} {reason}")
        elsewhere = _ELSEWHERE.get(flag)
        if close := close_matches(flag, known) if elsewhere is None else [name for name in elsewhere if name in known]:
            raise ConfigError(f"unknown flag {flag}; did you mean {close[0]}?")
        self.error(f"unknown flag {flag}")


# ---- flags of several commands ----


def add_tokenizer_flag(parser: Parser) -> None:
    """Add the required ``--tokenizer``."""
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True,
        help="run folder, tokenizer in any known format, or published name, e.g. gpt2 or Qwen/Qwen3-8B",
    )  # fmt: skip
    add_description_flags(parser)


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


def add_figures_flag(parser: Parser) -> None:
    """Add ``--json``, for `print_json`."""
    parser.add_output(
        "--json", metavar="FILE", type=lambda text: Path("-") if text == "-" else output_file(text, (".json",)),
        help="also write all figures to this file; - prints them instead",
    )  # fmt: skip


def add_quiet_flag(parser: Parser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", "-q", action="store_true", help="print errors only")


# ---- types of values ----


def output_file(text: str, endings: Sequence[str] = ()) -> Path:
    """Parse the path of a file to write, with one of these endings if any. It appears only when it is complete.

    Raises `ArgumentTypeError` or `OSError` if there can be no such file, before any work.
    """
    if text == "-":
        raise argparse.ArgumentTypeError("standard output cannot be written to; name a file")
    try:
        temporary_path(Path(text))
    except FormatError as error:  # a ValueError, of which argparse would leave out the message
        raise argparse.ArgumentTypeError(str(error)) from error
    if endings and Path(text).suffix.lower() not in endings:
        kind = endings[0][1:].upper()
        raise argparse.ArgumentTypeError(f"{text} does not end in {endings[0]}, and the file is {kind}")
    return Path(text)


def page_file(text: str) -> Path:
    """Parse the path of a page to write, as `output_file` does."""
    return output_file(text, (".html", ".htm"))


def names(text: str) -> list[str]:
    """Parse comma-separated names."""
    return [name.strip() for name in text.split(",")]


def numbers(text: str) -> list[int]:
    """Parse comma-separated thread counts."""
    return [number(name) for name in names(text)]


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
