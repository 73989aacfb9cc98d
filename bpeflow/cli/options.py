"""Flags that several commands share, and the types of their values.

A flag for a setting takes its help from the setting's one description in `bpeflow.config`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bpeflow.cli.parser import SETTING, FlagGroup, Parser
from bpeflow.errors import ConfigError

# ---- flags for settings ----


def add_setting(group: FlagGroup, key: str, flag: str | None = None, *aliases: str, **options: Any) -> None:
    """Add a flag that overrides a setting, with the setting's own description as its help."""
    if "action" not in options:
        options.setdefault("metavar", "VALUE")
    names = [flag or f"--{key}", *aliases]
    group.add_argument(*names, dest=f"{SETTING}{key}", default=argparse.SUPPRESS, **options)


def add_switch(group: FlagGroup, key: str, flag: str | None = None) -> None:
    """Add a flag that turns a setting on."""
    add_setting(group, key, flag, action="store_const", const=True)


def add_config_flags(parser: Parser) -> FlagGroup:
    """Add ``--config``, ``--set`` and ``--quiet``, and return their group."""
    group = parser.flag_group("run")
    group.add_argument("--config", metavar="FILE", type=Path, help="YAML config; flags override it")
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", type=_assignment,
        help="override any setting, e.g. monitor.interval=2; the value is YAML; repeatable",
    )  # fmt: skip
    add_quiet_flag(group)
    return group


def add_run_flags(parser: Parser) -> None:
    """Add the flags of commands that write a run folder."""
    group = add_config_flags(parser)
    add_setting(group, "out_dir", metavar="FOLDER")
    add_switch(group, "resume")
    add_switch(group, "restart")
    add_switch(group, "overwrite")


def add_learning_flags(parser: Parser, backend: bool = True) -> None:
    """Add the flags of commands that learn merges."""
    group = parser.flag_group("learning")
    add_setting(group, "vocab_size", metavar="N")
    special_tokens = group.exclusive()
    add_setting(special_tokens, "special_tokens", metavar="TEXT", nargs="*")
    special_tokens.add_argument(
        "--special_tokens_file", metavar="FILE", type=_lines, dest=f"{SETTING}special_tokens",
        default=argparse.SUPPRESS, help="file with a special token per line, instead of --special_tokens",
    )  # fmt: skip
    add_setting(group, "tie_break", metavar="NAME")
    add_setting(group, "min_frequency", metavar="N")
    add_setting(group, "max_token_length", metavar="N")
    add_setting(group, "thin_rare", metavar="below=N,keep=FRACTION")
    add_setting(group, "init_from", metavar="PATH")
    if backend:
        add_setting(group, "backend", metavar="NAME")


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags give, by key; `--set` first, then flags of their own."""
    return {**dict(options.assignments), **settings_of(options)}


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags of their own give, by key."""
    return {key.removeprefix(SETTING): value for key, value in vars(options).items() if key.startswith(SETTING)}


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"need KEY=VALUE, found {text!r}")
    key = key.replace("-", "_")
    from bpeflow._util.yaml import parse_yaml  # PyYAML, likewise
    from bpeflow.cli.setting_help import settings_by_key

    try:
        return key, parse_yaml(value)
    except ConfigError as error:
        problem = getattr(error.__cause__, "problem", None) or error
        setting = settings_by_key().get(key)
        example = f"; for example {setting.assignment()}" if setting else ""
        raise argparse.ArgumentTypeError(f"{key}: {value!r} is not valid YAML ({problem}){example}") from error


def _lines(path: str) -> list[str]:
    """Read the lines of a file, without empty ones."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the special tokens {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}") from error
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


#: Settings of a corpus that are flags of other commands, too.
_CORPUS_KEYS = ("bad_records", "exclude", "input_format", "invalid_utf8", "separator", "text_column", "text_field")


# ---- other flags ----


def add_counts_flag(parser: Parser) -> None:
    """Add the required ``--counts``."""
    parser.add_argument(
        "--counts", metavar="PATH", type=Path, required=True, help="run folder, or counts as .npz, .json or .tsv"
    )


def add_tokenizer_flag(parser: Parser) -> None:
    """Add the required ``--tokenizer``."""
    parser.add_argument(
        "--tokenizer", metavar="PATH", type=Path, required=True, help="run folder, or tokenizer in any known format"
    )
    add_description_flags(parser)


def add_description_flags(parser: Parser) -> None:
    """Add the flags for what a file of ranks lacks, for `description`."""
    parser.add_argument(
        "--known", metavar="NAME",
        help="published tokenizer whose pattern and special tokens the tokenizer's file is used with, e.g. p50k_edit "
        "or o200k_harmony (default: as its content says)",
    )  # fmt: skip
    parser.add_argument(
        "--pattern", metavar="TEXT", nargs="+",
        help="split pattern, or several, each of which splits the pieces of the one before (default: the file's own)",
    )  # fmt: skip
    parser.add_argument(
        "--special_tokens", metavar="TEXT", nargs="+", type=_special_token,
        help="special tokens besides those of the file: TEXT, or TEXT=ID with its id",
    )  # fmt: skip


def description(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the flags of `add_description_flags` from `options`, and return them as keywords of `Tokenizer.load`."""
    pattern, known, tokens = (options.pop(name) for name in ("pattern", "known", "special_tokens"))
    return {"pattern": pattern, "known": known, "special_tokens": dict(tokens or ())}


def _special_token(text: str) -> tuple[str, int | None]:
    token, equals, token_id = text.rpartition("=")
    return (token, int(token_id)) if token and equals and token_id.isdecimal() else (text, None)


def add_output_flag(parser: Parser, what: str) -> None:
    """Add the required ``--out``."""
    parser.add_argument("--out", metavar="FILE", type=_output_file, required=True, help=what)


def add_corpus_flags(parser: Parser) -> None:
    """Add the flags that describe a corpus, for `parse_with_corpus`."""
    parser.add_argument(
        "--config", metavar="FILE", type=Path,
        help="config of a training run, whose corpus to take: input, sources, fields, …; flags override it",
    )  # fmt: skip
    parser.add_argument(
        "--input_format", metavar="NAME", choices=["auto", "text", "jsonl", "parquet"], default="auto",
        help="auto (by file name), text, jsonl or parquet (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--text_field", metavar="NAME", default="text", help="JSON Lines field that holds the text (default: text)"
    )
    parser.add_argument(
        "--text_column", metavar="NAME", default="text", help="Parquet column that holds the text (default: text)"
    )
    parser.add_argument("--exclude", metavar="GLOB", nargs="+", default=[], help="files to leave out")
    parser.add_argument(
        "--bad_records", metavar="POLICY", default="error",
        help="JSON lines and other records without text: error, or skip and count them (default: error)",
    )  # fmt: skip


def parse_with_corpus(parser: Parser, argv: Sequence[str], *, required: bool = True) -> dict[str, Any]:
    """Parse flags whose defaults are the corpus that ``--config`` describes. ``--input`` replaces all its sources.

    Returns the values of the flags; that of ``--input``, `inputs`, may have sources as mappings.
    """
    first = Parser(prog=parser.prog, add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    path, inputs = first.parse_known_args(argv)[0].config, []
    if path is not None:
        from bpeflow._util.yaml import read_yaml  # PyYAML, likewise

        values = read_yaml(path)
        entries = [values.get("input", []), values.get("sources", [])]
        inputs = [entry for given in entries for entry in (given if isinstance(given, list) else [given])]
        known = (*_CORPUS_KEYS, "engine") if parser.get_default("engine") is not None else _CORPUS_KEYS
        parser.set_defaults(**{key: values[key] for key in known if key in values})
    options = vars(parser.parse(argv))
    del options["config"]
    flags = {key: options.pop(f"engine_{key}") for key in ("kind", "address") if f"engine_{key}" in options}
    if flags:
        options["engine"] = {**options["engine"], **flags}
    options["inputs"] = options["inputs"] or inputs
    if required and not options["inputs"]:
        parser.error("missing: --input, or --config with an input")
    return options


def add_engine_flags(parser: Parser) -> None:
    """Add the flags that override the section `engine` of a config, which `parse_with_corpus` returns."""
    parser.set_defaults(engine={})
    parser.add_argument(
        "--engine", metavar="NAME", dest="engine_kind", default=argparse.SUPPRESS,
        help="local (this machine) or ray (a cluster); further settings in the section engine of --config "
        "(default: local)",
    )  # fmt: skip
    parser.add_argument(
        "--engine_address", metavar="ADDRESS", default=argparse.SUPPRESS, help="address of the Ray cluster, host:port"
    )


def add_separator_flag(parser: Parser) -> None:
    """Add ``--separator``."""
    parser.add_argument(
        "--separator", metavar="TEXT",
        help="text that ends a document; '' if only the end of a file does (default: first special token)",
    )  # fmt: skip


def add_invalid_utf8_flag(parser: Parser) -> None:
    """Add ``--invalid_utf8``."""
    parser.add_argument(
        "--invalid_utf8", metavar="POLICY", default="error",
        help="input that is not UTF-8: error, replace (by U+FFFD), or skip the document (default: error)",
    )  # fmt: skip


def add_quiet_flag(parser: Parser | FlagGroup) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="print errors only")


# ---- types of values ----


def _output_file(text: str) -> Path:
    """Parse the path of a file to write, which appears only when it is complete."""
    if text == "-":
        raise argparse.ArgumentTypeError("standard output cannot be written to; name a file")
    return Path(text)


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


def count(text: str) -> int:
    """Parse a large number, such as ``100m`` for 100 million."""
    from bpeflow.config.sections import as_number

    try:
        return int(as_number(text))  # type: ignore[call-overload,no-any-return]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, found {text!r}") from None


def number(text: str) -> int:
    """Parse a number of threads or rounds."""
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"need a number from 1 to 4096, found {text!r}")
    return int(text)
