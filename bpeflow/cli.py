"""The command line: ``python -m bpeflow``. Its flags; what the commands do is in `commands`.

Little is imported here: what is wrong with the flags, and --help, shall not wait for what the commands need.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bpeflow.endings import USAGE, end_on_signals, exit_status, show_crashes
from bpeflow.errors import ConfigError
from bpeflow.flags import names, new_parser, number, numbers
from bpeflow.flow.thread_starts import bound_thread_starts
from bpeflow.token_cli import decode_command, encode_command, evaluate_command

_TRAIN = """\
Train a byte-level BPE tokenizer: count the pre-tokens of a corpus, learn the merges, write vocab.json and merges.txt.

  python -m bpeflow --config configs/quickstart.yaml
  python -m bpeflow --config configs/owt.yaml --backend omp --num_counter 8 --do_monitor
  python -m bpeflow --input corpus/*.txt --vocab_size 32000 --out_dir runs/mine
"""
_TRAIN_END = """\
Other commands; each has a --help of its own:
  python -m bpeflow merge --counts runs/owt    learn merges again from saved counts, without counting
  python -m bpeflow compare --counts runs/owt  the backends side by side on saved counts
  python -m bpeflow counts SRC DST             turn counts into JSON, TSV or back
  python -m bpeflow encode, decode, evaluate   corpora to token files, and back; tokenizers compared on corpora
  python -m bpeflow convert SRC DST --to NAME  write a tokenizer in another format
  python -m bpeflow backends                   which backends are here, and why others are not

Every setting of a config can be given as --set key=value; configs/owt.yaml explains them all.
"""
_MERGE = """\
Learn merges from counts that a run has saved: another vocabulary size or another backend, without counting again.
The settings are those of the run that counted; a config and the flags go over them.

  python -m bpeflow merge --counts runs/owt --vocab_size 16000 --out_dir runs/owt16k
  python -m bpeflow merge --counts counts.json --vocab_size 1000 --backend python --out_dir runs/small
  python -m bpeflow merge --counts runs/owt --init_from runs/owt --vocab_size 64000     go on from what was learned
"""
_COMPARE = """\
Let several backends learn merges from the same saved counts, in turn, see that they learn the same, and print what each
takes: seconds of setting up, of choosing pairs and of merging them; entries of occurrence lists looked at, and those
that still were an occurrence; candidates whose count had fallen; pairs; memory of the tables. Settings are as in merge.

  python -m bpeflow compare --counts runs/owt --backends c,omp --threads 1,2,4 --rounds 5
"""
_COUNTS = """\
Convert pre-token counts between bpeflow's own form (.npz), JSON ({"pre-token": count}) and TSV (pre-token TAB count,
with backslash escapes). The endings of the names say which.

  python -m bpeflow counts runs/owt/counts.npz counts.json
"""
_CONVERT = """\
Write a tokenizer in another format: gpt2 (vocab.json, merges.txt and bpeflow.json), huggingface (tokenizer.json),
tiktoken (base64 ranks, and a JSON file beside them) or cs336 (two pickles). SRC is a run folder, or a file or a folder
of any of these formats; DST is a folder, or the file.

  python -m bpeflow convert runs/owt tokenizer.json --to huggingface
  python -m bpeflow convert cl100k_base.tiktoken mine --to gpt2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    argv = [_underscored(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    commands = {
        "merge": _merge_command,
        "compare": _compare_command,
        "counts": _counts_command,
        "encode": encode_command,
        "decode": decode_command,
        "evaluate": evaluate_command,
        "convert": _convert_command,
        "backends": _backends_command,
    }
    command = commands.get(argv[0]) if argv else None
    try:
        _set_up_process()
        return command(argv[1:]) if command else _train_command(argv)
    except SystemExit:
        raise
    except BaseException as error:  # a library in Rust that panics raises no Exception
        return exit_status(error)


# ---- commands ----


def _train_command(argv: Sequence[str]) -> int:
    parser = new_parser("python -m bpeflow", _TRAIN, _TRAIN_END)
    parser.add_argument("--version", action=_Version, nargs=0, help="say which version this is")
    _add_settings(parser, _run_flags, _count_flags, _merge_flags)
    if not argv:
        parser.print_help()
        return USAGE
    options = parser.parse_args(argv)
    from bpeflow import commands

    return commands.train(options.config, _overrides(options), options.quiet)


def _merge_command(argv: Sequence[str]) -> int:
    parser = new_parser("python -m bpeflow merge", _MERGE)
    _counts_flag(parser)
    _add_settings(parser, _run_flags, _merge_flags)
    options = parser.parse_args(argv)
    from bpeflow import commands

    return commands.merge(options.counts, options.config, _overrides(options), options.quiet)


def _compare_command(argv: Sequence[str]) -> int:
    parser = new_parser("python -m bpeflow compare", _COMPARE)
    _counts_flag(parser)
    parser.add_argument(
        "--backends", metavar="NAMES", type=names, default=[], help="such as python,c,omp (default: all)"
    )
    parser.add_argument(
        "--threads", metavar="NUMBERS", type=numbers, default=[], help="of omp, such as 1,2,4 (default: one per core)"
    )
    parser.add_argument("--rounds", metavar="N", type=number, default=1, help="how often; medians are shown")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where to write all figures to")
    _add_settings(parser, _settings_flags, _vocab_flags)
    options = parser.parse_args(argv)
    from bpeflow import commands

    return commands.compare_backends(
        options.counts, options.config, _overrides(options), options.backends, options.threads, options.rounds,
        options.json, options.quiet,
    )  # fmt: skip


def _counts_command(argv: Sequence[str]) -> int:
    parser = new_parser("python -m bpeflow counts", _COUNTS)
    parser.add_argument("source", metavar="SRC", type=Path, help="counts to read")
    parser.add_argument("target", metavar="DST", type=Path, help="counts to write")
    options = parser.parse_args(argv)
    from bpeflow import commands

    return commands.convert_counts(options.source, options.target)


def _convert_command(argv: Sequence[str]) -> int:
    parser = new_parser("python -m bpeflow convert", _CONVERT)
    parser.add_argument("source", metavar="SRC", type=Path, help="the tokenizer to read")
    parser.add_argument("target", metavar="DST", type=Path, help="what to write: a folder, or a file")
    parser.add_argument("--to", metavar="NAME", required=True, help="gpt2, huggingface, tiktoken or cs336")
    options = parser.parse_args(argv)
    from bpeflow import commands

    return commands.convert_tokenizer(options.source, options.target, options.to)


def _backends_command(argv: Sequence[str]) -> int:
    new_parser("python -m bpeflow backends", "Say which merge backends are here, and why others are not.").parse_args(
        argv
    )
    from bpeflow import commands

    return commands.list_backends()


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"bpeflow {version('bpeflow')}")  # noqa: T201
        raise SystemExit(0)


# ---- flags ----


def _add_settings(parser: argparse.ArgumentParser, *groups: Callable[[argparse.ArgumentParser], object]) -> None:
    for add_group in groups:
        add_group(parser)


def _counts_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--counts", metavar="PATH", type=Path, required=True, help="a run folder, or counts as .npz, .json or .tsv"
    )


def _run_flags(parser: argparse.ArgumentParser) -> None:
    group = _settings_flags(parser)
    _setting(group, "--out_dir", metavar="FOLDER", help="the run folder, where everything is written")
    _setting(group, "--resume", action="store_const", const=True,
             help="go on with the run in that folder, which was killed or failed")  # fmt: skip
    _setting(group, "--restart", action="store_const", const=True,
             help="begin again where there is an unfinished run, which is lost")  # fmt: skip


def _settings_flags(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("the run")
    group.add_argument("--config", metavar="FILE", type=Path, help="settings in YAML; the flags here go over them")
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments", type=_assignment,
        help="any setting, such as tie_break=huggingface or monitor.interval=2; may be repeated",
    )  # fmt: skip
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return group


def _count_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("counting")
    _setting(
        group, "--input", metavar="PATH", nargs="+", help="files, folders, globs, @lists, URLs, or - for standard input"
    )
    _setting(group, "--input_format", metavar="NAME", help="auto (by the files' names), text, jsonl or parquet")
    _setting(group, "--text_field", metavar="NAME", help="field of JSON Lines with the text, such as data.text")
    _setting(group, "--text_column", metavar="NAME", help="column of Parquet with the text")
    _setting(group, "--num_counter", "-c", metavar="N", type=int, help="counter processes (default: one per core)")
    _setting(group, "--num_merger", "-m", metavar="N", type=int, help="merger processes (default: 1)")
    _setting(group, "--chunk_size", metavar="SIZE", help="text that a counter takes at a time, such as 8mb")
    _setting(group, "--memory_limit", metavar="SIZE",
             help="memory for counts, such as 4gb; more go to disk (default: half of what is available)")  # fmt: skip
    _setting(group, "--do_monitor", dest="monitor.enabled", action="store_const", const=True,
             help="print queue depths and rates every 10 s, and write monitor.jsonl")  # fmt: skip
    _setting(group, "--skip_merge", action="store_const", const=True, help="stop after the counts")


def _merge_flags(parser: argparse.ArgumentParser) -> None:
    _setting(_vocab_flags(parser), "--backend", metavar="NAME",
             help="auto, omp, c or python (default: auto, the best that is here)")  # fmt: skip


def _vocab_flags(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("merging")
    _setting(group, "--vocab_size", metavar="N", type=int, help="entries of the vocabulary: bytes, specials, merges")
    _setting(group, "--init_from", metavar="FOLDER", help="a tokenizer to extend: its merges come first")
    return group


def _setting(group: Any, *names: str, dest: str | None = None, **options: Any) -> None:
    """Add a flag that, when given, overrides the setting of its name."""
    key = dest or names[0].removeprefix("--")
    group.add_argument(*names, dest=f"setting {key}", default=argparse.SUPPRESS, **options)


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    flags = {key.removeprefix("setting "): value for key, value in vars(options).items() if key.startswith("setting ")}
    return {**dict(options.assignments), **flags}


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"need KEY=VALUE, found {text!r}")
    from bpeflow.yaml_values import parse_yaml

    try:
        return key, parse_yaml(value)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{key}: {error}") from error


def _underscored(argument: str) -> str:
    """Take ``--vocab-size`` for ``--vocab_size``: both spellings are common, one is documented."""
    name, equals, value = argument.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if name.startswith("--") else argument


# ---- the process ----


def _set_up_process() -> None:
    """End cleanly on signals; and print what an old terminal cannot show as escapes instead of failing over it."""
    end_on_signals()
    show_crashes()
    bound_thread_starts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
